"""The plan of the cuda engine that makes no products for rows that copy.

In the dense plan every h is multiplied at every step with all matrices that read it. Here a layer above the first has
an event log: a row for each step and sequence at which the layer moves, and one for each initial state. It holds the
new h and c, the products of h with U of the layer itself and V of the layer below, which stand still until the next
event, and W·h of the layer below, later replaced by the gates' pre-activations and their gradient. ``event[t, b]`` is
the row of the log that is valid before step t; a row that copies keeps its index.

The log may have room for fewer events than there are. An event without room takes the row of its sequence's initial
state, so that the results of the forward pass are right all the same. The backward pass then needs a forward pass with
more room, see :meth:`hmrnn.ops.cuda.cache.Lease.restore`.

Lists of the rows that move are made on the device (:mod:`hmrnn.ops.cuda.kernels_rows`), so that products can leave out
the others. In the backward pass a row that copies needs no product either: its gates, which only the gradient of z
reads, come from the log, and so does V·h for the gradient of a gate. The first layer moves at every step: its U·h and
W·x are dense products, its V·h comes from the log of the second layer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from hmrnn.ops.cuda.layer import Layer, Spec, aligned, copy_all
from hmrnn.ops.cuda.plan import Lanes, Plan, taken
from hmrnn.ops.interface import Options

Tile = dict[str, int]
PROGRAMS = 264
"""Largest number of programs of a product: two for each multiprocessor of an H200."""


def why_not(options: Options) -> str | None:
    """Why this plan cannot run with ``options``; None if it can."""
    if not options.variant.copy:
        return "with copy=False no row copies"
    return "it has no detectors with a hidden layer" if options.variant.detector_hidden else None


def tile(kind: str, spec: Spec, l: int) -> Tile:
    """The tile of a product, "forward", "backward" or "weights", in layer l.

    Those in bfloat16 are the fastest of some that were measured on an H200, at rates (0.19, 0.045): about a quarter of
    the rows move in the second layer, and a sixteenth in the third.
    """
    if spec.dtype == torch.float32:
        return {"BM": 32, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3}
    if kind == "weights":
        return {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
    if kind == "all":
        if spec.batch > 256:
            return {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
        return {"BM": 64, "BN": 64, "BK": 128, "num_warps": 4, "num_stages": 3}
    rows = spec.batch // 4 ** max(l, 1)
    BM = 64 if rows > 32 else 32 if rows > 16 else 16
    BN, BK = (128, 64) if BM == 64 else (64, 128)
    return {"BM": BM, "BN": BN, "BK": BK, "num_warps": 4, "num_stages": 4}


def in_triton(spec: Spec) -> bool:
    """Whether U of the first layer, which has all rows, is multiplied by the same kernel as the others.

    In bfloat16 it is: programs of cuBLAS take whole multiprocessors, and the other layers' products wait for them.
    """
    return spec.dtype == torch.bfloat16


class RowsLayer(Layer):
    """The buffers of one layer, with an event log in every layer but the first."""

    def _add_products(self, spec: Spec, columns: int) -> None:
        T, B, i32 = spec.steps, spec.batch, torch.int32
        self.event: Tensor | None = None
        self.room = 0  # for events in the log, beside the initial states
        self.place: Tensor | None = None  # t · B + b of each event, without the initial states
        self.counts = spec.new(T, 2, dtype=i32)  # rows that move, and those of them that read the layer above
        self.listed = spec.new(T, B, dtype=i32)
        self.base = spec.new(T + 1, dtype=i32).zero_()  # events before each step
        self.logged_events = spec.new(1, dtype=i32)  # those that had room in the log
        first = self.columns.get(("V", self.l - 1), self.columns["U", self.l])  # of readers; V and U lie side by side
        self.logged = columns - first
        if self.l == 0:
            kept = spec.norm and spec.training
            self.products = spec.new(T + 1 if kept else 1, B, self.logged)
            self.product_step = B * self.logged if kept else 0
        else:
            self.event = spec.new(T + 2, B, dtype=i32)
            self.event[0] = torch.arange(B, device=spec.device)
            if spec.training:
                self.room = spec.room[self.l - 1] if spec.room else T * B
                self.place = spec.new(self.room, dtype=i32)
            self.products = spec.new(B + self.room, aligned(self.gates) + self.logged)
        self.first_logged = first

    def _add_states(self, spec: Spec) -> None:
        if self.l == 0:
            super()._add_states(spec)
            return
        self.h = spec.new(spec.batch + self.room, self.H)
        self.h_start = spec.new(spec.batch, self.H)
        # the backward pass reads h in the log alone, so that gradients can have the memory of all steps
        self.hidden = self.d_hidden = spec.new(spec.steps, spec.batch, self.H)
        self.c_log = spec.new(*self.h.shape) if spec.training else None

    def _add_matrix(self, spec: Spec, slots: int, width: int) -> None:
        """Nothing: a product for each matrix reads it where the forward pass does."""

    def source(self, now: int) -> tuple[Tensor, Tensor | None]:
        return super().source(now) if self.event is None else (self.h, self.event[now:])

    def scratch(self, spec: Spec) -> Tensor:
        return super().scratch(spec) if self.l == 0 else spec.new(*self.d_hidden.shape)

    def _add_gates(self, spec: Spec) -> None:
        if self.l == 0:
            self._add_dense_gates(spec)
        else:
            self.ds = self.products[:, : self.gates]
            self.s = None if spec.norm else self.ds
        if "V" in self.reads:
            rows = spec.steps * spec.batch
            self.readers_place, self.readers_log = (spec.new(rows, dtype=torch.int32) for _ in range(2))
            self.readers_ends = spec.new(spec.steps, dtype=torch.int32)

    def _add_dense_gates(self, spec: Spec) -> None:
        if spec.norm:
            self.ds = self.products[: spec.steps, :, : self.gates]
        else:
            super()._add_gates(spec)

    def view(self, name: str) -> Tensor:
        """The columns of the log with W·h of this layer ("W"), V·h for the layer below ("V") or U·h ("U")."""
        if name == "W":
            return self.products[:, : self.gates]
        at = aligned(self.gates) if self.l > 0 else 0
        column = self.columns[name, self.l if name == "U" else self.l - 1] - self.first_logged
        return self.products[..., at + column :]


class Streams(Lanes):
    """Streams whose launches wait for what they need; without any, everything runs in order.

    Layers 2k and 2k+1, which wait for each other, share a lane, so that few launches wait for two streams. Beside the
    lanes run the detectors and the products with U, in a stream for each layer. That of the first layer is the current
    one: its product is the largest, and the current stream of a caller who captures has the lowest priority.
    """

    @staticmethod
    def number(layers: int) -> int:
        """Number of streams, with the current one."""
        return (layers + 1) // 2 + layers + 1

    @contextlib.contextmanager
    def _on(self, index: int) -> Iterator[None]:
        if not self._side:
            yield
            return
        with torch.cuda.stream(self._streams[index]):
            yield

    def lane(self, l: int) -> contextlib.AbstractContextManager[None]:
        """Run on the lane of layer l."""
        return self._on(1 + l // 2)

    def beside(self, l: int = -1) -> contextlib.AbstractContextManager[None]:
        """Run on the stream of layer l beside the lanes, or of the detectors."""
        return self._on(-1 - l)

    def done(self, what: str, l: int) -> None:
        """Mark what has been launched so far on the current stream as ``what`` of layer l."""
        if self._side:
            event, stream = torch.cuda.Event(), torch.cuda.current_stream()
            event.record(stream)
            self._marks[what, l] = event, stream

    def wait(self, *launches: tuple[str, int]) -> None:
        """Let the current stream wait for the last launch of each kind and layer, if there was any."""
        for launch in launches:
            if launch in self._marks:
                event, stream = self._marks[launch]
                here = torch.cuda.current_stream()
                if stream != here:
                    here.wait_event(event)

    @contextlib.contextmanager
    def forked(self) -> Iterator[None]:
        self._marks: dict[tuple[str, int], tuple[torch.cuda.Event, torch.cuda.Stream]] = {}
        with super().forked():
            self._streams = self._streams[1:] + self._streams[:1]
            yield


class RowsPlan(Plan):
    """Buffers and launches for calls of one :class:`Spec`, without products for rows that copy.

    In the forward pass, layer l at step t multiplies W, runs its cell, and multiplies V of the layer below. W waits for
    the cell of the layer below, and the cell for V·h of the layer above one step ago; a cell also waits for its
    detector, so that its list is ready for W of the layer above. A detector reads what cells wrote before, and no other
    layer reads U·h, so both run beside this. In the backward pass the gradient kernel of layer l waits for W of the
    layer above at t and V of the layer below at t+1. The plan has few buffers that are overwritten at every step
    (``back``, ``slots``, ``h_seen``, ``d_now``): what writes one comes after all that read it, by these rules.
    """

    layers: Sequence[RowsLayer]
    lanes: Streams

    def __init__(self, spec: Spec, lanes: Streams) -> None:
        from hmrnn.ops.cuda import kernels_rows

        self.kernels_rows = kernels_rows
        self.precision = "tf32" if spec.precision == "tf32" else "ieee"
        super().__init__(spec, lanes)
        self._detects = [self._detector_arguments(layer) for layer in self.layers[:-1]]

    def tile(self, kind: str, l: int) -> Tile:
        return tile(kind, self.spec, l)

    def _make_layers(self) -> Sequence[RowsLayer]:
        return [RowsLayer(self.spec, l) for l in range(len(self.spec.sizes))]

    def _contributions(self, layer: Layer) -> dict[str, Any]:
        layer = cast("RowsLayer", layer)
        row, B = self.table.stride(0), self.spec.batch
        found: dict[str, Any] = {"below": self.table, "below_row": row, "below_step": B * row}
        found |= {"above": None, "above_row": 0, "above_step": 0, "event": layer.event, "event_above": None}
        own = layer.view("U")
        found |= {"own": own, "own_row": own.stride(-2), "own_step": layer.product_step if layer.l == 0 else 0}
        if layer.l > 0:
            found |= {"below": layer.view("W"), "below_row": own.stride(0), "below_step": 0}
        if not layer.top:
            above = self.layers[layer.l + 1]
            found["event_above"] = above.event
            if "V" in layer.reads:
                found |= {"above": above.view("V"), "above_row": above.products.stride(0)}
        return found

    def _backward_arguments(self, layer: Layer) -> dict[str, Any]:
        below = self.layers[layer.l - 1].event if layer.l > 0 else None
        return super()._backward_arguments(layer) | {"event_below": below}

    def _detector_arguments(self, layer: RowsLayer) -> dict[str, Any]:
        above = self.layers[layer.l + 1]
        return taken(self.kernels_rows.detect, self._common(layer)) | {
            "dot_own": self.dot_own, "rows": above.listed, "counts": above.counts, "base": above.base,
            "event": above.event, "place": above.place, "room": above.room, "READS_ABOVE": "V" in above.reads,
            **self.kernels.block(self.spec.batch),
        }  # fmt: skip

    def _multiply(
        self, kind: str, t: int, layer: RowsLayer, left: Tensor, left_step: int, matrix: Tensor, out: Tensor,
        readers: bool = False, left_logged: bool = False, out_logged: bool = False, all_rows: bool = False,
    ) -> None:  # fmt: skip
        """Multiply the rows in the list of ``layer`` at step t, or all: left (parts, ·, K), matrix (parts, K, N)."""
        parts, K, N = matrix.shape
        config = self.tile("all" if all_rows else kind, layer.l)
        tiles = -(-self.spec.batch // config["BM"]) * -(-N // config["BN"]) * parts
        self.kernels_rows.multiply_rows[(min(tiles, PROGRAMS),)](
            t, self.spec.batch, None if all_rows else layer.listed, layer.counts,
            None if layer.place is None else layer.base, layer.room,
            left, left_step, left.stride(1), left.stride(0),
            matrix, matrix.stride(1), matrix.stride(2), matrix.stride(0), out, out.stride(1), out.stride(0),
            K=K, N=N, PARTS=parts, EVEN=K % config["BK"] == 0, READERS=readers, LEFT_LOGGED=left_logged,
            OUT_LOGGED=out_logged, PRECISION=self.precision, **config,
        )  # fmt: skip

    def _start_products(self, layer: Layer) -> None:
        layer = cast("RowsLayer", layer)
        view = layer.products[0] if layer.l == 0 else layer.products[: self.spec.batch, aligned(layer.gates) :]
        torch.mm(layer.h_start, layer.readers[layer.first_logged :].t(), out=view)

    def _forward_stage(self, t: int, layer: Layer, arguments: dict[str, Any]) -> None:
        layer, lanes, l = cast("RowsLayer", layer), self.lanes, layer.l
        if not layer.top:
            with lanes.beside():
                lanes.wait(("cell", l - 1), ("cell", l), ("cell", l + 1))
                self.kernels_rows.detect[(1,)](t, **self._detects[l])
                lanes.done("detector", l)
        with lanes.lane(l):
            if l > 0:
                lanes.wait(("cell", l - 1))
                self._multiply_below(t, layer)
            lanes.wait(("V", l + 1), ("U", l), ("detector", l))
            self.kernels.cell_forward[(self.spec.batch,)](t, **arguments)
            lanes.done("cell", l)
            if l > 0:
                self._multiply_new("V", t, layer)
            lanes.done("V", l)
        with lanes.beside(l):
            lanes.wait(("cell", l))
            self._multiply_new("U", t, layer)
            lanes.done("U", l)

    def _multiply_new(self, name: str, t: int, layer: RowsLayer) -> None:
        """Multiply U of the layer, or V of the layer below if it reads this one, with the new h."""
        reader = self.layers[layer.l if name == "U" else layer.l - 1]
        if name not in reader.reads:
            return
        matrix, out = reader.packed(name, self.layers).t(), layer.view(name)[..., : reader.gates]
        step = self.spec.batch * layer.H
        if layer.l == 0:
            out = out[t + 1 if layer.product_step else 0]
            if in_triton(self.spec):
                self._multiply("forward", t, layer, layer.hidden, step, matrix[None], out[None], all_rows=True)
            else:
                torch.mm(layer.hidden[t], matrix, out=out)
            return
        self._multiply("forward", t, layer, layer.hidden, step, matrix[None], out[None], out_logged=True)

    def _multiply_below(self, t: int, layer: RowsLayer) -> None:
        """Multiply W with h of the layer below."""
        below = self.layers[layer.l - 1]
        left, step = below.hidden, self.spec.batch * below.H
        if below.h_seen is not None:
            left, step = below.h_seen[None], 0
        W = layer.packed("W", self.layers).t()
        self._multiply("forward", t, layer, left, step, W[None], layer.view("W")[None], out_logged=True)

    def forward(self) -> None:
        copy_all((layer.h[: self.spec.batch], layer.h_start) for layer in self.layers[1:])
        super().forward()
        if self.spec.training:
            self._list_readers()

    def events(self) -> Tensor:
        """How many events each layer above the first had. If that is more than its log has room for, results are right
        all the same, but the backward pass must not run."""
        return torch.stack([layer.base[-1] for layer in self.layers[1:]])

    def _list_readers(self) -> None:
        """Launch what lists the rows that read the layer above, for the backward pass."""
        first = self.layers[0]
        self.kernels_rows.list_rows[(self.spec.steps,)](
            self.spec.batch, self.gate, first.listed, first.counts, D=self.spec.detectors,
            TOP_DOWN="V" in first.reads, **self.kernels.block(self.spec.batch),
        )  # fmt: skip
        for layer in self.layers:
            if layer.l > 0:
                torch.clamp(layer.base[-1:], max=layer.room, out=layer.logged_events)
            if "V" in layer.reads:
                torch.cumsum(layer.counts[:, 1], 0, dtype=torch.int32, out=layer.readers_ends)
                self.kernels_rows.list_readers[(self.spec.steps,)](
                    self.spec.batch, layer.listed, layer.counts, layer.readers_ends, layer.event, layer.readers_place,
                    layer.readers_log, **self.kernels.block(self.spec.batch),
                )  # fmt: skip

    def _backward_stage(self, t: int, layer: Layer, arguments: dict[str, Any]) -> None:
        layer, lanes, l = cast("RowsLayer", layer), self.lanes, layer.l
        with lanes.lane(l):
            lanes.wait(("W", l + 1), ("V", l - 1), ("U", l))
            self.kernels_backward.cell_backward[(self.spec.batch,)](t, **arguments)
            lanes.done("cell", l)
            if l > 0:
                self._multiply_back("W", t, layer)
                lanes.done("W", l)
        if not layer.top:  # where the layer above waits for it
            with lanes.lane(l + 1):
                lanes.wait(("cell", l))
                if "V" in layer.reads:
                    self._multiply_back("V", t, layer)
                lanes.done("V", l)
        with lanes.beside(l):
            lanes.wait(("cell", l))
            self._multiply_back("U", t, layer)
            lanes.done("U", l)

    def _multiply_back(self, name: str, t: int, layer: RowsLayer) -> None:
        """Multiply the gradient of the gates with one of the layer's matrices."""
        spec, (slot, column) = self.spec, layer.places[name]
        slots = slice(slot, slot + spec.parts)
        span = slots, slice(None), slice(column, column + layer.input_sizes[name])
        matrix = layer.packed(name, self.layers).unflatten(0, (spec.parts, -1))
        out, logged = layer.back[span], layer.l > 0 and not spec.norm
        given = layer.ds.unflatten(1, (spec.parts, -1)).transpose(0, 1) if logged else layer.gradient_at(spec, t)[slots]
        all_rows = layer.l == 0 and name == "U"
        if all_rows and not in_triton(spec):
            torch.bmm(given, matrix, out=out)
        else:
            self._multiply(
                "backward", t, layer, given, 0, matrix, out, readers=name == "V", left_logged=logged, all_rows=all_rows
            )
