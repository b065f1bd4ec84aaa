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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hmrnn.ops.cuda.layer import Layer, Pairs, Spec, aligned, copy_all
from hmrnn.ops.interface import LayerWeights, Result, State


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


def unflattened(flat: Sequence[Tensor], layers: int) -> Result:
    """The result of a call from its tensors: hidden, boundaries, probabilities, h, c, z and, if any, pending gates."""
    ends = flat[layers + 2 :]
    state = State(tuple(ends[:layers]), tuple(ends[layers : 2 * layers]), *ends[2 * layers :])
    return Result(tuple(flat[:layers]), flat[layers], flat[layers + 1], state)


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
        self._forwards = [
            self._common(layer)
            | self._units(layer)
            | {"c": layer.c, "dot_own": self.dot_own, "h_seen": layer.h_seen, "hidden": layer.h[1:]}
            for layer in self.layers
        ]
        self._backwards: list[dict[str, Any]] = []
        if spec.training:
            self.d_boundaries, self.d_probabilities = (new(T, *like_z, dtype=f32) for _ in range(2))
            self.d_before, self.d_now = (new(*like_z, dtype=f32) for _ in range(2))
            self.d_gate_before, self.d_gate_now = (
                new(*like_z, dtype=f32) if spec.variant.gate == "pending" else None for _ in range(2)
            )
            if spec.forced and not spec.straight_through:
                self.d_forced = new(T, *like_z, dtype=f32)
            self.d_s_z = new(T + 1, *like_z, dtype=f32)  # of the detectors' pre-activations; row T is zero
            self._backwards = [self._common(layer) | self._backward_arguments(layer) for layer in self.layers]
        held = [a for part in (self, *self.layers) for a in vars(part).values() if isinstance(a, Tensor)]
        self.nbytes = sum({a.untyped_storage().data_ptr(): a.untyped_storage().nbytes() for a in held}.values())

    def _contributions(self, layer: Layer) -> dict[str, Any]:
        """Where kernels find the products U·h, V·h and W·h of a layer."""
        l, row = layer.l, self.table.stride(0)
        contributions: dict[str, Any] = {"below": self.table, "below_row": row, "below_step": self.spec.batch * row}
        contributions |= {"above": None, "above_row": 0, "above_step": 0}
        for side, name, read in (("own", "U", l), ("above", "V", l + 1), ("below", "W", l - 1)):
            source = self.layers[read] if 0 <= read <= self.spec.detectors else None
            if source is not None and (name, l) in source.columns:
                first = source.columns[name, l]
                view = source.products[:, :, first : first + 4 * layer.H]
                contributions |= {side: view, f"{side}_row": view.stride(1), f"{side}_step": source.product_step}
        return contributions

    def _common(self, layer: Layer) -> dict[str, Any]:
        """The arguments that the forward and the backward kernel of a layer share."""
        spec, l = self.spec, layer.l
        return {
            **self._contributions(layer), **layer.gains, **self._detectors(layer), "bias": layer.bias,
            "index": self.index if l == 0 else None,
            "slope": self.slope, "noise": self.noise, "forced": self.forced, "lengths": self.lengths,
            "kept": layer.kept, "seen": layer.seen, "ZONEOUT": spec.zoneout,
            "h": layer.h, "c_log": layer.c_log, "s": layer.s, "s_row": aligned(layer.gates), "stats": layer.stats,
            "z": self.z, "gate": self.gate, "s_z": self.s_z, "probability": self.probability,
            "dot_above": self.dot_above, "dot_below": self.dot_below, "B": spec.batch, "H": layer.H, "LAYER": l,
            "D": spec.detectors, **spec.variant.flags(),
            "D2": layer.D2, "unit_log": layer.unit_log, "UNITS": layer.units,
            "UNIT_BLOCK": self.kernels.block(max(layer.units, 1))["BLOCK"], **self.kernels.block(layer.H),
        }  # fmt: skip

    def _units(self, layer: Layer) -> dict[str, Any]:
        """The products of D1 that a detector with a hidden layer reads; they lie beside those of U, V and W."""
        l, x = layer.l, self.x_units if layer.l == 0 else None
        units: dict[str, Any] = {"units_own": None, "units_above": None, "d1": layer.d1, "d2": layer.d2}
        units |= {"units_below": x, "units_below_row": layer.units, "units_below_step": self.spec.batch * layer.units}
        for side, name, read in (("own", "U", l), ("above", "V", l + 1), ("below", "W", l - 1)):
            source = self.layers[read] if 0 <= read <= self.spec.detectors else None
            if source is not None and (name, l) in source.unit_columns:
                units[f"units_{side}"] = source.products[:, :, source.unit_columns[name, l] :]
                if side == "below":
                    units |= {"units_below_row": source.products.stride(1), "units_below_step": source.product_step}
        return units

    def _detectors(self, layer: Layer) -> dict[str, Any]:
        """The detectors' rows of U, V and W that are multiplied with a layer's h."""
        l, layers = layer.l, self.layers
        return {
            "u_z": layer.detector.get("U"),
            "v_z": layers[l - 1].detector.get("V") if l > 0 else None,
            "w_z": None if layer.top else layers[l + 1].detector.get("W"),
        }

    def _backward_arguments(self, layer: Layer) -> dict[str, Any]:
        B, gates, parts = self.spec.batch, layer.gates, self.spec.parts
        via: dict[str, Any] = {f"via_{name}{suffix}": 0 for name in "VW" for suffix in ("_row", "_part")}
        via |= {"via_V": None, "via_W": None}
        for name, reader in layer.columns:
            view = self.layers[reader].via[name]
            via |= {f"via_{name}": view, f"via_{name}_row": view.stride(1), f"via_{name}_part": view.stride(0)}
        units: dict[str, Any] = {f"unit_{name}": None for name in "UVW"} | {f"unit_{name}_row": 0 for name in "UVW"}
        for name, reader in layer.unit_columns:
            back = self.layers[reader].unit_back
            units |= {f"unit_{name}": back[:, self.layers[reader].unit_span(name)], f"unit_{name}_row": back.stride(0)}
        slots: dict[str, Any] = {"slots": None, "slot_step": 0, "slot_row": 0, "slot_one": 0, "slot_two": 0}
        if self.spec.norm:
            part = B * gates // parts
            slots = {"slots": layer.slots, "slot_step": B * gates, "slot_row": gates // parts}
            slots |= {
                "slot_one": part if parts == 4 else layer.H,
                "slot_two": part * parts // 2 if parts > 1 else 2 * layer.H,
            }
        return {
            **via, **units, **slots, "d_units": layer.d_units if layer.units else None,
            "ds_x": self.ds_x if layer.l == 0 else None, "ds_x_row": aligned(gates),
            "d_s_z": self.d_s_z, "d_hidden": layer.d_hidden, "d_h": layer.d_h, "d_c": layer.d_c,
            "d_boundaries": self.d_boundaries, "d_probabilities": self.d_probabilities, "d_forced": self.d_forced,
            "d_before": self.d_before, "d_now": self.d_now, "d_gate_before": self.d_gate_before,
            "d_gate_now": self.d_gate_now, "temperature": self.temperature, "STRAIGHT": self.spec.straight_through,
            "DETACHED": self.spec.variant.boundary == "reinforce", "PARTS": parts,
        }  # fmt: skip

    def load_weights(self, weights: Sequence[LayerWeights]) -> None:
        pairs: Pairs = [(self.W_x, weights[0].W[: self.layers[0].gates])]
        for layer, w in zip(self.layers, weights):
            pairs += layer.packing(w, self.layers)
        copy_all(pairs)

    def load_inputs(
        self,
        source: Tensor,
        indices: Tensor | None,
        state: State,
        slope: Tensor | float,
        temperature: Tensor | float,
        lengths: Tensor | None,
        forced: Tensor | None,
        noise: Tensor | None,
        kept: Sequence[Tensor] | None,
        seen: Sequence[Tensor] | None,
    ) -> None:
        if self.lengths is not None and lengths is not None:
            self.lengths.copy_(lengths)
            self.live = torch.arange(self.spec.steps, device=self.lengths.device)[:, None] < self.lengths
        pairs: Pairs = [(self.z[0], state.z)]
        if self.pending is not None:
            pairs.append((self.pending[0], state.pending))
        if self.index is not None and self.embedding is not None and indices is not None:
            self.index.copy_(indices if self.live is None else indices * self.live)
            pairs.append((self.embedding, source))
        else:
            pairs.append((self.x, source if self.live is None else source.masked_fill(~self.live[..., None], 0)))
        for layer, h, c in zip(self.layers, state.h, state.c):
            pairs += [(layer.h[0], h), (layer.c_start, c)]
        if kept is not None:
            pairs += [(layer.kept, mask) for layer, mask in zip(self.layers, kept) if layer.kept is not None]
        if seen is not None:
            pairs += [(layer.seen, mask) for layer, mask in zip(self.layers, seen) if layer.seen is not None]
        pairs += [(into, given) for into, given in ((self.forced, forced), (self.noise, noise)) if into is not None]
        for into, number in ((self.slope, slope), (self.temperature, temperature)):
            if isinstance(number, Tensor) and into is not None:
                pairs.append((into, number.view(1)))
            elif into is not None:
                into.fill_(number)
        copy_all(pairs)

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
        for layer, arguments in zip(self.layers, self._forwards):
            kernels.start[(B,)](layer.c_start, **taken(kernels.start, arguments))
            torch.mm(layer.h[0], layer.readers.t(), out=layer.products[0])
        with self.lanes.forked():
            if spec.training:
                with self.lanes.background():  # for the backward pass
                    for layer in self.layers:
                        for name, block in layer.blocks.items():
                            block.copy_(layer.packed(name, self.layers))
            for t in range(spec.steps):
                for layer, arguments in zip(self.layers, self._forwards):
                    with self.lanes.stage(layer.l):
                        kernels.cell_forward[(B,)](t, **arguments)
                        layer.multiply(t)

    def result(self) -> Result:
        """Copies of the results of the forward pass."""
        end, layers = self.spec.steps, self.layers
        logs = [*(layer.h[1:] for layer in layers), self.z[1:], self.probability]
        ends = [*(layer.h[end] for layer in layers), *(layer.c[end % 2] for layer in layers), self.z[end]]
        ends += [] if self.pending is None else [self.pending[end]]
        masked = [] if self.live is None else [log * self.live[..., None] for log in logs]
        plain = ends if masked else logs + ends
        copies = [torch.empty_like(a) for a in plain]
        copy_all(zip(copies, plain))
        return unflattened(masked + copies, len(layers))

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
        with self.lanes.forked():
            for t in reversed(range(spec.steps)):
                for layer, arguments in zip(reversed(self.layers), reversed(self._backwards)):
                    with self.lanes.stage(layer.l):
                        kernels.cell_backward[(B,)](t, **arguments)
                        torch.bmm(layer.gradient_at(spec, t), layer.matrix, out=layer.back)
                        if layer.D1 is not None:
                            torch.mm(layer.d_units[t], layer.D1, out=layer.unit_back)
        for arguments in self._backwards:
            kernels.finish[(B,)](**taken(kernels.finish, arguments), NORM=spec.norm)

    def state_gradients(self) -> list[Tensor | None]:
        """The gradients of the initial h, c, z and pending gates and of forced boundaries: buffers, to be copied."""
        layers = self.layers
        d_z, d_pending = self.d_before + self.d_now, None
        if self.d_gate_before is not None and self.d_gate_now is not None:
            d_pending = self.d_gate_before + self.d_gate_now
        return [*(layer.d_h for layer in layers), *(layer.d_c for layer in layers), d_z, d_pending, self.d_forced]
