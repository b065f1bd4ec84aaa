"""Spec, the key of a plan of the cuda engine, and Layer, the buffers of one layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Variant

STATS = 16
"""Numbers that layer norm logs per row. At OF_STATS: mean and 1/deviation of the contributions of U, V and W and of c.
At OF_STATS + MEANS, for U, V and W: the means of d and d·x̂, where d is the gradient of the standardised x̂."""
OF_STATS, MEANS = {"U": 0, "V": 2, "W": 4, "c": 6}, 8
EXTRAS = LayerWeights._fields[4:]
"""The weights of layer norm and of detectors with a hidden layer."""
Pairs = list[tuple[Tensor, Tensor | None]]


@dataclasses.dataclass(frozen=True)
class Spec:
    """Everything that buffers and launches depend on: calls with the same spec can share them."""

    steps: int
    batch: int
    sizes: tuple[int, ...]
    input_size: int
    symbols: int  # 0: x is dense
    norm: bool
    dtype: torch.dtype  # of matrix products and of h; c, z and all sums are float32
    variant: Variant
    forced: bool
    straight_through: bool
    noise: bool
    zoneout: float  # 0 with masks
    masks: bool  # whether there are masks of zoneout
    seen: bool  # whether there are masks of dropout between layers
    lengths: bool
    training: bool
    input_gradient: bool  # whether the gradient of the input needs its own log: if it is wanted, with layer norm
    precision: str  # of float32 products
    device: torch.device

    @property
    def detectors(self) -> int:
        return len(self.sizes) - 1

    @property
    def parts(self) -> int:
        """Number of parts (2 or 4) that the sums over 4H in backward products are split into: faster with few rows."""
        return 4 if self.batch <= 128 else 2

    @property
    def chunks(self) -> int:
        """Number of parts that sums over steps and batch are split into."""
        return max(1, min(64, self.steps * self.batch // 64))

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


def aligned(width: int) -> int:
    """``width`` rounded up to a multiple of 16, so that Triton can load several elements of a row at once."""
    return -(-width // 16) * 16


def product(a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> Tensor:
    """``out`` = a @ b, or ``out`` += a @ b with ``add``; summed in float32 for any dtype."""
    if a.dtype == out.dtype:
        return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.addmm(out, a, b, out.dtype, out=out) if add else torch.mm(a, b, out.dtype, out=out)
    total = a.float() @ b.float()
    return out.copy_(out + total if add else total)


def copy_all(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    """Copy the second tensor of each pair into the first, in few launches; None stands for zeros."""
    alike: dict[tuple[torch.dtype, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
    zeros: dict[torch.dtype, list[Tensor]] = {}
    for into, given in pairs:
        if given is None:
            zeros.setdefault(into.dtype, []).append(into)
        elif given.device != into.device or given.stride() != into.stride() or given.shape != into.shape:
            into.copy_(given)
        else:
            group = alike.setdefault((into.dtype, given.dtype), ([], []))
            group[0].append(into)
            group[1].append(given)
    for targets, sources in alike.values():
        torch._foreach_copy_(targets, sources)
    for targets in zeros.values():
        torch._foreach_zero_(targets)


class Layer:
    """The buffers of one layer. In a log of T+1 rows, step t reads row t and writes row t+1.

    Matrix products do not include the detectors' rows: the kernels compute those in float32.
    """

    def __init__(self, spec: Spec, l: int) -> None:
        new, T, B, f32 = spec.new, spec.steps, spec.batch, torch.float32
        self.l, self.H, self.top = l, spec.sizes[l], l == spec.detectors
        self.gates = 4 * self.H
        self.reads: dict[str, int | None] = {}  # for each matrix the layer whose h it multiplies; None: x
        if not self.top and spec.variant.gate != "none":
            self.reads["V"] = l + 1
        self.reads |= {"W": l - 1 if l > 0 else None, "U": l}
        self.input_sizes = {
            name: spec.input_size if read is None else spec.sizes[read] for name, read in self.reads.items()
        }

        # forward pass: one product of h with all matrices that read it, side by side
        read_down = l > 0 and spec.variant.gate != "none"
        readers = [("W", l + 1)] * (not self.top) + [("V", l - 1)] * read_down + [("U", l)]  # W first, see multiply
        self.columns: dict[tuple[str, int], int] = {}
        columns = 0
        for name, reader in readers:
            self.columns[name, reader] = columns
            columns += aligned(4 * spec.sizes[reader])
        # the rows of D1 that read h, in the same product
        self.units = 0 if self.top else spec.variant.detector_hidden
        self.unit_columns: dict[tuple[str, int], int] = {}
        for name, reader in readers:
            if spec.variant.detector_hidden and reader < spec.detectors:
                self.unit_columns[name, reader] = columns
                columns += aligned(spec.variant.detector_hidden)
        self.readers = new(columns, self.H).zero_()
        kept = spec.norm and spec.training  # products of all steps; otherwise of one
        self.products = new(T + 1 if kept else 1, B, columns)
        self.product_step = B * columns if kept else 0
        self.h = new(T + 1, B, self.H)
        self.c_log: Tensor | None = None
        self.c = new(2, B, self.H, dtype=f32)  # step t reads c[t % 2] and writes the other
        self.c_start = new(B, self.H, dtype=f32)

        self.rows = self.gates + (not self.top and not self.units)
        self.bias = new(self.rows, dtype=f32)
        self.detector: dict[str, Tensor] = {}  # the detector's row of each matrix, if it has no hidden layer
        self.extras: dict[str, Tensor | None] = dict.fromkeys(EXTRAS)
        if self.units:
            self.extras["D1"] = new(self.units, sum(self.input_sizes.values()))
            sizes: dict[str, tuple[int, ...]] = {"d1": (self.units,), "D2": (1, self.units), "d2": (1,)}
            self.extras |= {name: new(*size, dtype=f32) for name, size in sizes.items()}
        self.D1 = self.extras["D1"]
        self.unit_log: Tensor | None = None  # (T, B, units) the detector's hidden layer before gelu
        if not self.top and not self.units:
            self.detector = {name: new(size, dtype=f32) for name, size in self.input_sizes.items()}
        if spec.norm:
            self.extras |= {f"gain_{name}": new(self.gates, dtype=f32) for name in self.reads}
            self.extras |= {name: new(self.H, dtype=f32) for name in ("gain_c", "bias_c")}

        masked = spec.seen and not self.top
        self.seen = new(B, self.H, dtype=f32) if masked else None
        self.h_seen = new(B, self.H) if masked else None  # h of the last step times ``seen``
        self.kept = new(T, B, self.H, dtype=torch.uint8) if spec.masks else None
        self.s: Tensor | None = None  # (T, B, ·) without layer norm: the gates' pre-activations
        self.stats: Tensor | None = None  # (T, B, STATS) with layer norm
        if spec.training:
            self._add_backward(spec)

    def _add_backward(self, spec: Spec) -> None:
        """Create the buffers of the backward pass.

        The gradient is multiplied with V, W and U side by side in one product. With layer norm the gradients of the
        three contributions differ, and each has a slot in a batched product.
        """
        new, T, B, f32, parts = spec.new, spec.steps, spec.batch, torch.float32, spec.parts
        self.c_log, self.d_hidden = new(T + 1, B, self.H), new(T, B, self.H)
        names = [name for name, read in self.reads.items() if read is not None]
        widths = [aligned(self.input_sizes[name]) for name in names]
        if spec.norm:
            slots, width = len(names), max(widths)
            places = [(slot * parts, 0) for slot in range(slots)]
            self.slots = new(slots * parts, B, self.gates // parts)  # the gradients at the current step
            self.stats = new(T, B, STATS, dtype=f32)
            first = self.columns["U", self.l]  # the log of the gradient of the gates overwrites that of U·h
            self.ds = self.products[:T, :, first : first + self.gates]
        else:
            slots, width = 1, sum(widths)
            places = [(0, sum(widths[:i])) for i in range(len(names))]
            self.s = new(T, B, aligned(self.gates))
            self.ds = self.s[..., : self.gates]  # the gradient of a step overwrites its pre-activations
        self.back = new(slots * parts, B, width)
        self.matrix = new(slots * parts, self.gates // parts, width).zero_()
        self.via: dict[str, Tensor] = {}
        self.blocks: dict[str, Tensor] = {}  # the parts of ``matrix`` that hold V, W and U
        for name, (slot, column) in zip(names, places):
            span = slice(column, column + self.input_sizes[name])
            self.via[name] = self.back[slot : slot + parts, :, span]
            self.blocks[name] = self.matrix[slot : slot + parts].view(self.gates, width)[:, span]
        if self.D1 is not None:
            self.unit_log = new(T, B, self.units, dtype=f32)
            self.d_units = new(T, B, self.units)
            self.unit_back = new(B, self.D1.shape[1])  # the gradient of what the detector read
        self.d_h, self.d_c = self.c  # which the backward pass does not read

    def multiply(self, t: int) -> None:
        """Multiply h after step t with all matrices that read it; with dropout, W above reads ``h_seen``."""
        into = self.products[t + 1 if self.product_step else 0]
        if self.h_seen is None:
            torch.mm(self.h[t + 1], self.readers.t(), out=into)
            return
        W = self.columns.get(("V", self.l - 1), self.columns["U", self.l])
        torch.mm(self.h_seen, self.readers[:W].t(), out=into[:, :W])
        torch.mm(self.h[t + 1], self.readers[W:].t(), out=into[:, W:])

    def gradient_at(self, spec: Spec, t: int) -> Tensor:
        """(slots · parts, B, 4H / parts): the left operand of the backward product at step t."""
        if spec.norm:
            return self.slots
        return self.ds[t].unflatten(1, (spec.parts, -1)).transpose(0, 1)

    def unit_span(self, name: str) -> slice:
        """The columns of D1 beside U, V or W."""
        own, below = self.H, sum(self.input_sizes.values()) - self.input_sizes["W"]
        return {"U": slice(own), "V": slice(own, below), "W": slice(below, None)}[name]

    def packed(self, name: str, layers: Sequence[Layer]) -> Tensor:
        """(4H, size): the copy of one of its matrices in the ``readers`` of the layer that it reads."""
        read = self.reads[name]
        assert read is not None
        first = layers[read].columns[name, self.l]
        return layers[read].readers[first : first + self.gates]

    def packing(self, w: LayerWeights, layers: Sequence[Layer]) -> Pairs:
        """Pairs of a buffer and the weight to copy into it."""
        pairs: Pairs = [(self.bias, w.b)]
        pairs += [(into, getattr(w, name)) for name, into in self.extras.items() if into is not None]
        for name, read in self.reads.items():
            matrix: Tensor = getattr(w, name)
            if read is not None:
                pairs.append((self.packed(name, layers), matrix[: self.gates]))
            if name in self.detector:
                pairs.append((self.detector[name], matrix[-1]))
            elif self.units and read is not None:
                first = layers[read].unit_columns[name, self.l]
                pairs.append((layers[read].readers[first : first + self.units], w.detector_rows(name)))
        return pairs
