"""The launches of the cuda engine for calls of one shape.

Forwards, stage (t, l) is the cell kernel of layer l at step t and one matrix product of its new h with everything that
reads it: U of the layer itself (at t+1), V of the layer below (at t+1) and W of the layer above (at t). Backwards it is
the kernel of the gradient and one product that sends it back through the layer's own U, V and W.

Stage (t, l) needs (t, l-1), (t-1, l) and (t-1, l+1); backwards (t, l+1), (t+1, l) and (t+1, l-1). So it can run in wave
2t + l, layers of the same parity side by side. Layers 2k and 2k+1 share a lane; a stage waits for the neighbour on
another. All it reads from its neighbours was written by the three stages it needs; and whoever reads a buffer that
every step uses again (``products``, ``back``, ``d_now``) is one of the three stages that its next writer needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hmrnn.ops.cuda_layer import Layer, Spec, aligned, copy_all, product
from hmrnn.ops.interface import LayerWeights, Result, State


class Gradients(NamedTuple):
    """What a backward pass gives. State and forced are the plan's own buffers: copy them."""

    source: Tensor | None  # of x (T, B, size) or of the embedding
    state: State
    forced: Tensor | None  # (T, B, L-1)
    weights: list[dict[str, Tensor]]


class Lanes:
    """Streams on which layers run side by side. Without any, everything runs in the order of its launch."""

    def __init__(self, side: Sequence[torch.cuda.Stream] = ()) -> None:
        self._side = list(side)
        self._streams: list[torch.cuda.Stream] = []
        self._done: dict[int, torch.cuda.Event] = {}

    @contextlib.contextmanager
    def forked(self) -> Iterator[None]:
        """Inside, stages run on their lanes; after it, the current stream has waited for all of them."""
        if not self._side:
            yield
            return
        here = torch.cuda.current_stream()
        self._streams, self._done = [here, *self._side], {}
        for stream in self._side:
            stream.wait_stream(here)
        yield
        for stream in self._side:
            here.wait_stream(stream)

    @contextlib.contextmanager
    def stage(self, l: int) -> Iterator[None]:
        """Run on the lane of layer l, after the neighbour that has another lane."""
        if not self._side:
            yield
            return
        stream = self._streams[l // 2]
        neighbour = self._done.get(l + 1 if l % 2 else l - 1)
        if neighbour is not None:
            stream.wait_event(neighbour)
        with torch.cuda.stream(stream):
            yield
            self._done[l] = torch.cuda.Event()
            self._done[l].record(stream)


class Plan:
    """Buffers and launches for calls of one :class:`Spec`.

    ``load_weights``, ``load_inputs``, ``forward``, ``result``; then ``load_gradients``, ``backward``, ``gradients``.
    The backward pass works in place: before a second one, ``forward`` has to run again.
    """

    def __init__(self, spec: Spec, lanes: Lanes) -> None:
        from hmrnn.ops import kernels, kernels_backward

        self.spec, self.lanes, self.kernels, self.kernels_backward = spec, lanes, kernels, kernels_backward
        new, T, B, f32 = spec.new, spec.steps, spec.batch, torch.float32
        like_z = (B, spec.detectors)
        self.x = new(T, B, spec.input_size)
        self.embedding = new(spec.symbols, spec.input_size) if spec.symbols else None
        self.index = new(T, B, dtype=torch.int32) if spec.symbols else None
        self.lengths = new(B, dtype=torch.int32) if spec.lengths else None
        self.live: Tensor | None = None  # (T, B)
        self.slope = new(1, dtype=f32)
        self.z, self.dot_own, self.dot_above, self.dot_below = (new(T + 1, *like_z, dtype=f32) for _ in range(4))
        self.probability, self.s_z = (new(T, *like_z, dtype=f32) for _ in range(2))
        self.forced = new(T, *like_z, dtype=f32) if spec.forced else None
        self.noise = new(T, *like_z, dtype=f32) if spec.noise else None
        self.layers = [Layer(spec, l) for l in range(len(spec.sizes))]

        # W·x of all steps at once: a table for symbols, otherwise, if the first layer keeps s, where s will be
        first = self.layers[0]
        self.W_x = new(first.rows, spec.input_size)
        if first.s is not None and not spec.symbols:
            self.table = first.s.view(T * B, first.width)
        else:
            self.table = new(spec.symbols or T * B, aligned(4 * first.H))

        self.d_forced = self.d_x = None
        self._forwards = [self._common(layer) | self._forward_arguments(layer) for layer in self.layers]
        self._backwards: list[dict[str, Any]] = []
        if spec.training:
            self.d_boundaries, self.d_probabilities = (new(T, *like_z, dtype=f32) for _ in range(2))
            self.d_before, self.d_now = (new(*like_z, dtype=f32) for _ in range(2))
            if spec.forced and not spec.straight_through:
                self.d_forced = new(T, *like_z, dtype=f32)
            if spec.norm and spec.input_gradient:
                self.d_x = new(T, B, spec.input_size)
            self._backwards = [self._common(layer) | self._backward_arguments(layer) for layer in self.layers]

    def _common(self, layer: Layer) -> dict[str, Any]:
        """What the kernels of a layer take, forwards and backwards."""
        spec, l, row = self.spec, layer.l, self.table.stride(0)
        contributions = {"below": self.table, "below_row": row, "below_step": spec.batch * row}
        contributions |= {"above": None, "above_row": 0, "above_step": 0}
        for side, name, read in (("own", "U", l), ("above", "V", l + 1), ("below", "W", l - 1)):
            if 0 <= read <= spec.detectors:
                source = self.layers[read]
                first = source.columns[name, l]
                view = source.products[:, :, first : first + 4 * layer.H]
                contributions |= {side: view, f"{side}_row": view.stride(1), f"{side}_step": source.product_step}
        return {
            **contributions, **layer.gains, "bias": layer.bias, "index": self.index if l == 0 else None,
            "slope": self.slope, "noise": self.noise, "forced": self.forced, "lengths": self.lengths,
            "h": layer.h, "c_log": layer.c_log, "s": layer.s, "s_row": layer.width, "stats": layer.stats,
            "z": self.z, "s_z": self.s_z, "probability": self.probability,
            "dot_above": self.dot_above, "dot_below": self.dot_below, "B": spec.batch, "H": layer.H, "LAYER": l,
            "D": spec.detectors, "SOFT": spec.boundary == "soft", "HOLD": spec.on_copy == "hold",
            **self.kernels.block(layer.H),
        }  # fmt: skip

    def _forward_arguments(self, layer: Layer) -> dict[str, Any]:
        l, layers = layer.l, self.layers
        return {
            "c": layer.c,
            "dot_own": self.dot_own,
            "u_z": layer.detector.get("U"),
            "v_z": layers[l - 1].detector["V"] if l > 0 else None,
            "w_z": None if layer.top else layers[l + 1].detector.get("W"),
        }

    def _backward_arguments(self, layer: Layer) -> dict[str, Any]:
        via: dict[str, Any] = {"via_V": None, "via_V_row": 0, "via_W": None, "via_W_row": 0}
        for name, reader in layer.columns:
            view = self.layers[reader].via[name]
            via |= {f"via_{name}": view, f"via_{name}_row": view.stride(0)}
        return {
            **via, "ds": layer.ds, "ds_slot": layer.ds.stride(0), "ds_row": layer.width,
            "raw": layer.raw, "raw_row": layer.width, "d_squashed": layer.d_squashed,
            "d_hidden": layer.d_hidden, "d_h": layer.d_h, "d_c": layer.d_c,
            "d_boundaries": self.d_boundaries, "d_probabilities": self.d_probabilities, "d_forced": self.d_forced,
            "d_before": self.d_before, "d_now": self.d_now, "STRAIGHT": self.spec.straight_through,
        }  # fmt: skip

    def load_weights(self, weights: Sequence[LayerWeights]) -> None:
        pairs = [layer.packing(w, self.layers) for layer, w in zip(self.layers, weights)]
        copy_all([(self.W_x, weights[0].W), *(pair for layer in pairs for pair in layer)])

    def load_inputs(
        self,
        source: Tensor,  # x (T, B, size), or with indices the embedding
        indices: Tensor | None,  # (T, B)
        state: State,
        slope: Tensor | float,
        lengths: Tensor | None,
        forced: Tensor | None,
        noise: Tensor | None,
    ) -> None:
        if self.lengths is not None and lengths is not None:
            self.lengths.copy_(lengths)
            self.live = torch.arange(self.spec.steps, device=self.lengths.device)[:, None] < self.lengths
        pairs: list[tuple[Tensor, Tensor | None]] = [(self.z[0], state.z)]
        if self.index is not None and self.embedding is not None and indices is not None:
            self.index.copy_(indices if self.live is None else indices * self.live)
            pairs.append((self.embedding, source))
        else:
            pairs.append((self.x, source if self.live is None else source.masked_fill(~self.live[..., None], 0)))
        pairs += [(layer.h[0], h) for layer, h in zip(self.layers, state.h)]
        pairs += [(layer.c_start, c) for layer, c in zip(self.layers, state.c)]
        pairs += [(into, given) for into, given in ((self.forced, forced), (self.noise, noise)) if into is not None]
        copy_all(pairs)
        if isinstance(slope, Tensor):
            self.slope.copy_(slope)
        else:
            self.slope.fill_(slope)

    def forward(self) -> None:
        """All launches of the forward pass."""
        spec, kernels, B, D = self.spec, self.kernels, self.spec.batch, self.spec.detectors
        first, x = self.layers[0], self.x.flatten(0, 1)
        if self.embedding is not None and self.index is not None:
            torch.index_select(self.embedding, 0, self.index.flatten(), out=x)
        source = x if self.embedding is None else self.embedding
        torch.mm(source, self.W_x[: 4 * first.H].t(), out=self.table[:, : 4 * first.H])
        if D > 0:
            kernels.row_dots[(len(x),)](
                x, first.detector["W"], self.dot_below, D, WIDTH=spec.input_size, **kernels.block(spec.input_size)
            )
        taken = ("h", "c", "c_log", "dot_own", "dot_above", "u_z", "v_z", "H", "LAYER", "D", "BLOCK", "num_warps")
        for layer, arguments in zip(self.layers, self._forwards):
            kernels.start[(B,)](layer.c_start, **{name: arguments[name] for name in taken})
            torch.mm(layer.h[0], layer.readers.t(), out=layer.products[0])
        with self.lanes.forked():
            for t in range(spec.steps):
                for layer, arguments in zip(self.layers, self._forwards):
                    with self.lanes.stage(layer.l):
                        kernels.cell_forward[(B,)](t, **arguments)
                        into = layer.products[t + 1 if layer.product_step else 0]
                        torch.mm(layer.h[t + 1], layer.readers.t(), out=into)

    def result(self) -> Result:
        """Copies of what the forward pass gave."""
        end, layers = self.spec.steps, self.layers
        logs = [*(layer.h[1:] for layer in layers), self.z[1:], self.probability]
        ends = [*(layer.h[end] for layer in layers), *(layer.c[end % 2] for layer in layers), self.z[end]]
        masked = [] if self.live is None else [log * self.live[..., None] for log in logs]
        plain = ends if masked else logs + ends
        copies = [torch.empty_like(a) for a in plain]
        copy_all(zip(copies, plain))
        flat, L = masked + copies, len(layers)
        state = State(tuple(flat[L + 2 : 2 * L + 2]), tuple(flat[2 * L + 2 : -1]), flat[-1])
        return Result(tuple(flat[:L]), flat[L], flat[L + 1], state)

    def load_gradients(self, of: Sequence[Tensor | None]) -> None:
        """The gradients of hidden, boundaries, probabilities, h, c and z; None for what was not used."""
        layers = self.layers
        buffers = [*(layer.d_hidden for layer in layers), self.d_boundaries, self.d_probabilities]
        buffers += [*(layer.d_h for layer in layers), *(layer.d_c for layer in layers), self.d_before]
        copy_all(zip(buffers, of))

    def backward(self) -> None:
        """All launches of the backward pass; without layer norm, up to the weight gradients."""
        kernels, spec, B = self.kernels_backward, self.spec, self.spec.batch
        self.d_now.zero_()
        for layer in self.layers:
            layer.back.zero_()
            if spec.norm:
                layer.gate_sums.zero_()
                layer.cell_sums.zero_()
        for end in range(spec.steps, 0, -spec.piece):
            begin = max(end - spec.piece, 0)
            with self.lanes.forked():
                for t in reversed(range(begin, end)):
                    for layer, arguments in zip(reversed(self.layers), reversed(self._backwards)):
                        with self.lanes.stage(layer.l):
                            kernels.cell_backward[(B,)](t, t - begin, **arguments)
                            if len(layer.back) == 1:
                                torch.mm(layer.ds[0, t - begin], layer.matrix[0], out=layer.back[0])
                            else:
                                torch.bmm(layer.ds[: len(layer.back), t - begin], layer.matrix, out=layer.back)
            if spec.norm:
                for layer in self.layers:
                    self._add_weights(layer, layer.totals, begin, end)
                    self._add_sums(layer, begin, end)
        taken = ("h", "z", "via_U", "via_U_row", "via_V", "via_V_row", "d_h", "d_now", "H", "LAYER", "D", "BLOCK")
        for arguments in self._backwards:
            chosen = {name: arguments[name] for name in taken}
            kernels.finish[(B,)](**chosen, NORM=spec.norm, num_warps=arguments["num_warps"])

    def _add_weights(self, layer: Layer, totals: Mapping[str, Tensor], begin: int, end: int) -> None:
        """The gradients of a layer's matrices, from the steps from begin to end: one product each."""
        for slot, (name, read) in enumerate(layer.reads.items()):
            ds = layer.ds[slot if self.spec.norm else 0, : end - begin].flatten(0, 1)[:, : layer.rows]
            if name in totals:
                product(ds.t(), self._read_by(layer, name, begin, end), totals[name], add=end < self.spec.steps)
            if read is None and self.d_x is not None:
                torch.mm(ds, self.W_x, out=self.d_x[begin:end].flatten(0, 1))

    def _read_by(self, layer: Layer, name: str, begin: int, end: int) -> Tensor:
        """(steps · B, size): what a matrix was multiplied with."""
        read = layer.reads[name]
        if read is None:
            return self.x[begin:end].flatten(0, 1)
        now = int(name == "W")
        h = self.layers[read].h[begin + now : end + now]
        if name != "U" and not self.spec.norm:  # gated by z; with layer norm ds is
            h = h * self.z[begin + now : end + now, :, min(read, layer.l), None].to(h.dtype)
        return h.flatten(0, 1)

    def _add_sums(self, layer: Layer, begin: int, end: int) -> None:
        """With layer norm: the sums behind the gradients of bias and gains, from the steps from begin to end."""
        spec, l, arguments = self.spec, layer.l, self._backwards[layer.l]
        column_sums = self.kernels_backward.column_sums
        common = {"rows": (end - begin) * spec.batch, "first": begin * spec.batch, "gate_step": spec.detectors}
        common |= {"ROWS": 16, "BLOCK": 64, "num_warps": 4}
        column_sums[(-(-layer.rows // 64), spec.chunks)](
            layer.gate_sums, layer.raw, layer.width,
            p_0=arguments["own"], p_0_row=arguments["own_row"],
            p_1=arguments["above"], p_1_row=arguments["above_row"],
            p_2=arguments["below"][1:] if l > 0 else self.table, p_2_row=arguments["below_row"],
            index=arguments["index"], stats=layer.stats,
            gate_1=None if layer.top else self.z[:, :, l:], gate_2=self.z[1:, :, l - 1 :] if l > 0 else None,
            WIDTH=layer.rows, GATES=4 * layer.H, **common,
        )  # fmt: skip
        assert layer.c_log is not None
        assert layer.stats is not None
        column_sums[(-(-layer.H // 64), spec.chunks)](
            layer.cell_sums, layer.d_squashed, layer.H,
            p_0=layer.c_log[1:], p_0_row=layer.H, p_1=None, p_1_row=0, p_2=None, p_2_row=0,
            index=None, stats=layer.stats[:, :, 6:], gate_1=None, gate_2=None,
            WIDTH=layer.H, GATES=layer.H, **common,
        )  # fmt: skip

    def gradients(self, source: torch.dtype | None, weights: Sequence[Mapping[str, torch.dtype]]) -> Gradients:
        """The gradients: of the source if a type is given for it, of the weights those that a type is given for."""
        state = State(
            tuple(layer.d_h for layer in self.layers),
            tuple(layer.d_c for layer in self.layers),
            self.d_before + self.d_now,
        )
        by_layer = self._weights_with_norm if self.spec.norm else self._weights
        found = [by_layer(layer, wanted) for layer, wanted in zip(self.layers, weights)]
        return Gradients(None if source is None else self._source(source), state, self.d_forced, found)

    def _weights(self, layer: Layer, wanted: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
        sizes = layer.input_sizes.items()
        found = {name: self.spec.new(layer.rows, n, dtype=wanted[name]) for name, n in sizes if name in wanted}
        self._add_weights(layer, found, 0, self.spec.steps)
        if "b" in wanted:
            found["b"] = layer.ds[0].flatten(0, 1)[:, : layer.rows].sum(0, dtype=torch.float32).to(wanted["b"])
        return found

    def _weights_with_norm(self, layer: Layer, wanted: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
        gates, cell = layer.gate_sums.sum(0), layer.cell_sums.sum(0)
        found = {**layer.totals, "b": gates[0], "bias_c": cell[0], "gain_c": cell[1]}
        found |= {f"gain_{name}": gates[1 + i, : 4 * layer.H] for i, name in enumerate("UVW")}
        return {name: found[name].to(dtype, copy=True) for name, dtype in wanted.items()}

    def _source(self, dtype: torch.dtype) -> Tensor:
        spec, first = self.spec, self.layers[0]
        if self.d_x is not None:
            d_x = self.d_x.to(dtype, copy=True)
        else:
            ds = first.ds[0].flatten(0, 1)[:, : first.rows]
            d_x = product(ds, self.W_x, spec.new(len(ds), spec.input_size, dtype=dtype))
        d_x = d_x.view(spec.steps, spec.batch, -1)
        if self.index is None:
            return d_x
        return torch.ops.aten.embedding_dense_backward(d_x, self.index, spec.symbols, -1, False)
