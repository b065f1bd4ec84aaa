"""The kernel launches of the cuda engine for calls of one shape.

In the forward pass, stage (t, l) is the cell kernel of layer l at step t and one matrix product of its new h with all
matrices that read it: V of the layer below (at t+1), W of the layer above (at t) and U of the layer itself (at t+1).
With dropout between layers W has a separate product with a masked copy of h. In the backward pass, stage (t, l) is the
gradient kernel and one product of the gradient with the layer's own V, W and U.

Stage (t, l) depends on (t, l-1), (t-1, l) and (t-1, l+1); in the backward pass on (t, l+1), (t+1, l) and (t+1, l-1). So
it can run in wave 2t + l, with layers of the same parity in parallel. Layers 2k and 2k+1 share a lane (a stream); a
stage waits for its neighbour on another lane. It reads only what those three stages wrote. Some buffers are overwritten
at every step (``products``, ``slots``, ``back``, ``d_now``): the stage that writes one depends on all that read it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hmrnn.ops.cuda.layer import Layer, Pairs, Spec, aligned, copy_all
from hmrnn.ops.interface import LayerWeights, State


class Lanes:
    """Streams on which layers run in parallel. Without any, everything runs in the order of the launches."""

    def __init__(self, side: Sequence[torch.cuda.Stream] = (), background: torch.cuda.Stream | None = None) -> None:
        """``side``: streams of all lanes but the first, which is the current one. ``background``: see that method."""
        self._side, self._background = list(side), background
        self._streams: list[torch.cuda.Stream] = []
        self._done: dict[int, torch.cuda.Event] = {}

    @contextlib.contextmanager
    def forked(self) -> Iterator[None]:
        """Inside, stages run on their lanes; at the end the current stream waits for all of them."""
        others = self._side if self._background is None else [*self._side, self._background]
        if not others:
            yield
            return
        here = torch.cuda.current_stream()
        self._streams, self._done = [here, *self._side], {}
        for stream in others:
            stream.wait_stream(here)
        yield
        for stream in others:
            here.wait_stream(stream)

    @contextlib.contextmanager
    def stage(self, l: int) -> Iterator[None]:
        """Run on the lane of layer l, after the last stage of its neighbour on another lane."""
        if not self._side:
            yield
            return
        stream, neighbour = self._streams[l // 2], self._done.get(l + 1 if l % 2 else l - 1)
        if neighbour is not None:
            stream.wait_event(neighbour)
        with torch.cuda.stream(stream):
            yield
            self._done[l] = torch.cuda.Event()
            self._done[l].record(stream)

    @contextlib.contextmanager
    def background(self) -> Iterator[None]:
        """Run in parallel to all stages, none of which may depend on it; to be entered before the first stage."""
        if self._background is None:
            yield
            return
        with torch.cuda.stream(self._background):
            yield


@dataclasses.dataclass
class Call:
    """The arguments of a call, without the tensors that may have gradients."""

    spec: Spec
    slope: Tensor | float
    temperature: Tensor | float
    indices: Tensor | None
    lengths: Tensor | None
    noise: Tensor | None
    kept: Sequence[Tensor] | None
    seen: Sequence[Tensor] | None


def taken(kernel: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a kernel takes."""
    return {name: arguments[name] for name in (*kernel.arg_names, "num_warps") if name in arguments}


class Plan:
    """Buffers and launches for calls of one :class:`Spec`.

    Call ``load_weights``, ``load_inputs``, ``forward``, ``result``, then ``load_gradients``, ``backward`` and the
    functions of :mod:`hmrnn.ops.cuda.gradients`. The last three overwrite logs: before a second backward pass,
    ``forward`` must run again.
    """

    def __init__(self, spec: Spec, lanes: Lanes) -> None:
        from hmrnn.ops.cuda import kernels, kernels_backward, kernels_gradients

        self.spec, self.lanes = spec, lanes
        self.kernels, self.kernels_backward, self.kernels_gradients = kernels, kernels_backward, kernels_gradients
        new, T, B, f32 = spec.new, spec.steps, spec.batch, torch.float32
        like_z = (B, spec.detectors)
        self.x = new(T, B, spec.input_size)
        self.embedding = new(spec.symbols, spec.input_size) if spec.symbols else None
        self.index = new(T, B, dtype=torch.int32) if spec.symbols else None
        self.lengths = new(B, dtype=torch.int32) if spec.lengths else None
        self.live: Tensor | None = None  # (T, B)
        self.slope = new(1, dtype=f32)
        self.temperature = new(1, dtype=f32) if spec.variant.boundary == "gumbel" and spec.noise else None
        self.z, self.dot_own, self.dot_above, self.dot_below = (new(T + 1, *like_z, dtype=f32) for _ in range(4))
        self.pending = new(T + 1, *like_z, dtype=f32) if spec.variant.gate == "pending" else None
        self.gate = {"boundary": self.z, "pending": self.pending}.get(spec.variant.gate)  # of the top-down input
        self.probability, self.s_z = (new(T, *like_z, dtype=f32) for _ in range(2))
        self.forced = new(T, *like_z, dtype=f32) if spec.forced else None
        self.noise = new(T, *like_z, dtype=f32) if spec.noise else None
        self.layers = [Layer(spec, l) for l in range(len(spec.sizes))]

        # W·x of all steps: a table for symbols; otherwise in the memory of s, if the first layer logs s
        first = self.layers[0]
        self.W_x = new(first.gates, spec.input_size)
        if first.s is not None and not spec.symbols:
            self.table = first.s.view(T * B, -1)
        else:
            self.table = new(spec.symbols or T * B, aligned(first.gates))
        self.x_units = new(spec.symbols or T * B, first.units) if first.units else None  # D1·x, as W·x
        self.ds_x: Tensor | None = None  # (T · B, ·) the gradient of W·x, only if spec.input_gradient
        if spec.input_gradient:
            self.ds_x = new(T * B, aligned(first.gates)) if spec.symbols else self.table

        self.d_forced: Tensor | None = None
        if spec.training:
            self.d_boundaries, self.d_probabilities = (new(T, *like_z, dtype=f32) for _ in range(2))
            self.d_before, self.d_now = (new(*like_z, dtype=f32) for _ in range(2))
            self.d_gate_before, self.d_gate_now = (
                new(*like_z, dtype=f32) if spec.variant.gate == "pending" else None for _ in range(2)
            )
            if spec.forced and not spec.straight_through:
                self.d_forced = new(T, *like_z, dtype=f32)
            self.d_s_z = new(T + 1, *like_z, dtype=f32)  # of the detectors' pre-activations; row T is zero
        self.arguments = [self._arguments(layer) for layer in self.layers]
        held = [a for part in (self, *self.layers) for a in vars(part).values() if isinstance(a, Tensor)]
        self.nbytes = sum({a.untyped_storage().data_ptr(): a.untyped_storage().nbytes() for a in held}.values())

    def _arguments(self, layer: Layer) -> dict[str, Any]:
        """The arguments of a layer's kernels by name: buffers of the plan and the layer, where products lie, sizes."""
        spec, kernels, layers, l, B = self.spec, self.kernels, self.layers, layer.l, self.spec.batch
        row, width = self.table.stride(0), aligned(layer.gates)
        found = vars(self) | vars(layer) | layer.extras | spec.variant.flags() | kernels.block(layer.H)
        found |= {
            "B": B, "LAYER": l, "D": spec.detectors, "PARTS": spec.parts, "NORM": spec.norm, "ZONEOUT": spec.zoneout,
            "STRAIGHT": spec.straight_through, "DETACHED": spec.variant.boundary == "reinforce", "UNITS": layer.units,
            "UNIT_BLOCK": kernels.block(max(layer.units, 1))["BLOCK"], "hidden": layer.h[1:], "s_row": width,
            "ds_x_row": width, "below": self.table, "below_row": row, "below_step": B * row,
            "above": None, "above_row": 0, "above_step": 0, "units_own": None, "units_above": None,
            "units_below": self.x_units, "units_below_row": layer.units, "units_below_step": B * layer.units,
            # the detectors' rows of U, V and W that are multiplied with the layer's h
            "u_z": layer.detector.get("U"), "v_z": layers[l - 1].detector.get("V") if l > 0 else None,
            "w_z": None if layer.top else layers[l + 1].detector.get("W"),
        }  # fmt: skip
        if l > 0:
            found |= {"index": None, "ds_x": None, "units_below": None}
        for side, name, read in (("own", "U", l), ("above", "V", l + 1), ("below", "W", l - 1)):
            source = layers[read] if 0 <= read < len(layers) else layer
            if (name, l) not in source.columns:
                continue
            places = {"": source.columns} | ({"units_": source.unit_columns} if layer.units else {})
            for kind, columns in places.items():
                found |= {
                    f"{kind}{side}": source.products[:, :, columns[name, l] :],
                    f"{kind}{side}_row": source.products.stride(1), f"{kind}{side}_step": source.product_step,
                }  # fmt: skip
        if spec.training:
            found |= self._backward_arguments(layer)
        return found

    def _backward_arguments(self, layer: Layer) -> dict[str, Any]:
        """Where the products of the gradient with V, W and U lie, and where to write their left operands."""
        found: dict[str, Any] = dict.fromkeys(("via_V", "via_W", "unit_U", "unit_V", "unit_W", "slots", "d_units"))
        found |= dict.fromkeys(("via_V_row", "via_V_part", "via_W_row", "via_W_part"), 0)
        found |= dict.fromkeys(("unit_U_row", "unit_V_row", "unit_W_row"), 0)
        found |= dict.fromkeys(("slot_step", "slot_row", "slot_one", "slot_two"), 0)
        for name, reader in layer.columns:
            view = self.layers[reader].via[name]
            found |= {f"via_{name}": view, f"via_{name}_row": view.stride(1), f"via_{name}_part": view.stride(0)}
        for name, reader in layer.unit_columns:
            back = self.layers[reader].unit_back
            found |= {f"unit_{name}": back[:, self.layers[reader].unit_span(name)], f"unit_{name}_row": back.stride(0)}
        if layer.units:
            found["d_units"] = layer.d_units
        if self.spec.norm:
            parts, rows = self.spec.parts, self.spec.batch * layer.gates
            found |= {"slots": layer.slots, "slot_step": rows, "slot_row": layer.gates // parts}
            found |= {"slot_one": rows // parts if parts == 4 else layer.H, "slot_two": rows // 2}
        return found

    def load_weights(self, weights: Sequence[LayerWeights]) -> None:
        pairs: Pairs = [(self.W_x, weights[0].W[: self.layers[0].gates])]
        for layer, w in zip(self.layers, weights):
            pairs += layer.packing(w, self.layers)
        copy_all(pairs)

    def load_inputs(self, call: Call, source: Tensor, state: State, forced: Tensor | None) -> None:
        if self.lengths is not None and call.lengths is not None:
            self.lengths.copy_(call.lengths)
            self.live = torch.arange(self.spec.steps, device=self.lengths.device)[:, None] < self.lengths
        pairs: Pairs = [(self.z[0], state.z)]
        if self.pending is not None:
            pairs.append((self.pending[0], state.pending))
        if self.index is not None and self.embedding is not None and call.indices is not None:
            self.index.copy_(call.indices if self.live is None else call.indices * self.live)
            pairs.append((self.embedding, source))
        else:
            pairs.append((self.x, source if self.live is None else source.masked_fill(~self.live[..., None], 0)))
        for layer, h, c in zip(self.layers, state.h, state.c):
            pairs += [(layer.h[0], h), (layer.c_start, c)]
        given = [(self.forced, forced), (self.noise, call.noise)]
        given += zip([layer.kept for layer in self.layers], call.kept or [])
        given += zip([layer.seen for layer in self.layers], call.seen or [])
        for number, value in ((self.slope, call.slope), (self.temperature, call.temperature)):
            if isinstance(value, Tensor):
                given.append((number, value.view(1)))
            elif number is not None:
                number.fill_(value)
        copy_all(pairs + [(into, a) for into, a in given if into is not None])

    def forward(self) -> None:
        """Launch the forward pass."""
        spec, kernels, B, D = self.spec, self.kernels, self.spec.batch, self.spec.detectors
        first, x = self.layers[0], self.x.flatten(0, 1)
        if self.embedding is not None and self.index is not None:
            torch.index_select(self.embedding, 0, self.index.flatten(), out=x)
        source = x if self.embedding is None else self.embedding
        torch.mm(source, self.W_x.t(), out=self.table[:, : first.gates])
        if self.x_units is not None and first.D1 is not None:
            torch.mm(source, first.D1[:, first.unit_span("W")].t(), out=self.x_units)
        elif D > 0:
            kernels.row_dots[(len(x),)](
                x, first.detector["W"], self.dot_below, D, WIDTH=spec.input_size, **kernels.block(spec.input_size)
            )
        for layer, arguments in zip(self.layers, self.arguments):
            kernels.start[(B,)](**taken(kernels.start, arguments))
            torch.mm(layer.h[0], layer.readers.t(), out=layer.products[0])
        cells = [(layer, taken(kernels.cell_forward, a)) for layer, a in zip(self.layers, self.arguments)]
        with self.lanes.forked():
            if spec.training:
                with self.lanes.background():  # for the backward pass
                    for layer in self.layers:
                        for name, block in layer.blocks.items():
                            block.copy_(layer.packed(name, self.layers))
            for t in range(spec.steps):
                for layer, arguments in cells:
                    with self.lanes.stage(layer.l):
                        kernels.cell_forward[(B,)](t, **arguments)
                        layer.multiply(t)

    def result(self) -> list[Tensor]:
        """Copies of the results: hidden, boundaries, probabilities, h, c, z and, if any, pending gates."""
        end, layers = self.spec.steps, self.layers
        logs = [*(layer.h[1:] for layer in layers), self.z[1:], self.probability]
        ends = [*(layer.h[end] for layer in layers), *(layer.c[end % 2] for layer in layers), self.z[end]]
        ends += [] if self.pending is None else [self.pending[end]]
        masked = [] if self.live is None else [log * self.live[..., None] for log in logs]
        plain = ends if masked else logs + ends
        copies = [torch.empty_like(a) for a in plain]
        copy_all(zip(copies, plain))
        return masked + copies

    def load_gradients(self, grads: Sequence[Tensor | None]) -> None:
        """Copy the gradients of hidden, boundaries, probabilities, h, c, z and pending gates; None stands for zeros."""
        layers = self.layers
        buffers = [*(layer.d_hidden for layer in layers), self.d_boundaries, self.d_probabilities]
        buffers += [*(layer.d_h for layer in layers), *(layer.d_c for layer in layers), self.d_before]
        buffers += [] if self.d_gate_before is None else [self.d_gate_before]
        copy_all(zip(buffers, grads, strict=True))

    def backward(self) -> None:
        """Launch the backward pass, without the weight gradients."""
        kernels, spec, B = self.kernels_backward, self.spec, self.spec.batch
        zeros = [self.d_now, self.d_s_z[spec.steps], *(layer.back for layer in self.layers)]
        zeros += [] if self.d_gate_now is None else [self.d_gate_now]
        zeros += [layer.unit_back for layer in self.layers if layer.units]
        copy_all((a, None) for a in zeros)
        cells = [(layer, taken(kernels.cell_backward, a)) for layer, a in zip(self.layers, self.arguments)]
        with self.lanes.forked():
            for t in reversed(range(spec.steps)):
                for layer, arguments in reversed(cells):
                    with self.lanes.stage(layer.l):
                        kernels.cell_backward[(B,)](t, **arguments)
                        torch.bmm(layer.gradient_at(spec, t), layer.matrix, out=layer.back)
                        if layer.D1 is not None:
                            torch.mm(layer.d_units[t], layer.D1, out=layer.unit_back)
        for arguments in self.arguments:
            kernels.finish[(B,)](**taken(kernels.finish, arguments))

    def state_gradients(self) -> list[Tensor | None]:
        """The gradients of the initial h, c, z and pending gates and of forced boundaries: buffers, to be copied."""
        layers = self.layers
        d_z, d_pending = self.d_before + self.d_now, None
        if self.d_gate_before is not None and self.d_gate_now is not None:
            d_pending = self.d_gate_before + self.d_gate_now
        return [*(layer.d_h for layer in layers), *(layer.d_c for layer in layers), d_z, d_pending, self.d_forced]
