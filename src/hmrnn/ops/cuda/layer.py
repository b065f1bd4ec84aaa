"""What a call of the cuda engine depends on, and the buffers of one layer for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from hmrnn.ops.estimators import Boundary, OnCopy
from hmrnn.ops.interface import LayerWeights, TopDown

STATS = 16
"""Numbers that layer norm keeps of each row: at OF_STATS mean and 1/deviation of the contributions of U, V and W and of
c; MEANS further on, for the first three, the means of d and of d·x̂, d being the gradient of what was normalised."""
OF_STATS, MEANS = {"U": 0, "V": 2, "W": 4, "c": 6}, 8
GAINS = ("gain_U", "gain_V", "gain_W", "gain_c", "bias_c")
Pairs = list[tuple[Tensor, Tensor | None]]


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that buffers and launches depend on: calls with the same spec can share them."""

    steps: int
    batch: int
    sizes: tuple[int, ...]
    input_size: int
    symbols: int  # 0: x is dense
    norm: bool
    dtype: torch.dtype  # of matrix products and of h; c, z and all sums are float32
    boundary: Boundary
    on_copy: OnCopy
    forced: bool
    straight_through: bool
    noise: bool
    zoneout: float  # without masks
    masks: bool  # of units that zoneout keeps
    seen: bool  # masks of what gates see of the layer below
    lengths: bool
    training: bool
    input_gradient: bool  # asked for, and needs a log of its own, as with layer norm
    precision: str  # of float32 products
    device: torch.device
    flush: bool = True
    gate: TopDown = "boundary"  # of the top-down input, see Options.gate
    copy: bool = True

    @property
    def detectors(self) -> int:
        return len(self.sizes) - 1

    @property
    def parts(self) -> int:
        """Products backwards sum over 4H: in parts side by side that is faster, above all with few rows (2 or 4)."""
        return 4 if self.batch <= 128 else 2

    @property
    def chunks(self) -> int:
        """Parts that sums over steps and batch are made in."""
        return max(1, min(64, self.steps * self.batch // 64))

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


def aligned(width: int) -> int:
    """Rows of matrices are padded to 16 numbers, which is what Triton needs to load several at once."""
    return -(-width // 16) * 16


def product(a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> Tensor:
    """``out`` (+)= a @ b, summed in float32 whatever the types."""
    if a.dtype == out.dtype:
        return torch.addmm(out, a, b, out=out) if add else torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.addmm(out, a, b, out.dtype, out=out) if add else torch.mm(a, b, out.dtype, out=out)
    total = a.float() @ b.float()
    return out.copy_(out + total if add else total)


def copy_all(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    """Copy the second tensors into the first, in as few launches as can be; None stands for zeros."""
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
    """One layer's buffers. Row t of a log over T+1 steps is what step t finds, row t+1 what it leaves.

    No matrix product has a detector's row: the kernels add what detectors get and give, in float32.
    """

    def __init__(self, spec: Spec, l: int) -> None:
        new, T, B, f32 = spec.new, spec.steps, spec.batch, torch.float32
        self.l, self.H, self.top = l, spec.sizes[l], l == spec.detectors
        self.gates = 4 * self.H
        self.reads: dict[str, int | None] = {}  # its matrices, and whose h each is multiplied with; None: x
        if not self.top and spec.gate != "none":
            self.reads["V"] = l + 1
        self.reads |= {"W": l - 1 if l > 0 else None, "U": l}
        self.input_sizes = {
            name: spec.input_size if read is None else spec.sizes[read] for name, read in self.reads.items()
        }

        # forwards: h times all the matrices that read it, side by side
        read_down = l > 0 and spec.gate != "none"
        readers = [("W", l + 1)] * (not self.top) + [("V", l - 1)] * read_down + [("U", l)]  # W first, see multiply
        self.columns: dict[tuple[str, int], int] = {}
        columns = 0
        for name, reader in readers:
            self.columns[name, reader] = columns
            columns += aligned(4 * spec.sizes[reader])
        kept = spec.norm and spec.training
        self.readers = new(columns, self.H).zero_()
        self.products = new(T + 1 if kept else 1, B, columns)
        self.product_step = B * columns if kept else 0
        self.h = new(T + 1, B, self.H)
        self.c = new(2, B, self.H, dtype=f32)  # by turns
        self.c_start = new(B, self.H, dtype=f32)

        self.bias = new(self.gates + (not self.top), dtype=f32)
        self.detector: dict[str, Tensor] = {}  # the detector's row of each matrix
        if not self.top:
            self.detector = {name: new(size, dtype=f32) for name, size in self.input_sizes.items()}
        self.gains: dict[str, Tensor | None] = dict.fromkeys(GAINS)
        if spec.norm:
            self.gains |= {f"gain_{name}": new(self.gates, dtype=f32) for name in self.reads}
            self.gains |= {name: new(self.H, dtype=f32) for name in ("gain_c", "bias_c")}

        masked = spec.seen and not self.top
        self.seen = new(B, self.H, dtype=f32) if masked else None
        self.h_seen = new(B, self.H) if masked else None  # h of the last step, as the gates above see it
        self.kept = new(T, B, self.H, dtype=torch.uint8) if spec.masks else None
        self.s: Tensor | None = None  # (T, B, ·) without layer norm: the gates' pre-activations
        self.c_log: Tensor | None = None
        self.stats: Tensor | None = None  # (T, B, STATS) with layer norm
        if spec.training:
            self._add_backward(spec)

    def _add_backward(self, spec: Spec) -> None:
        """The gradient of the contributions times V, W and U: side by side in one product; with layer norm, where each
        contribution has a gradient of its own, each in a slot of a batched product."""
        new, T, B, f32, parts = spec.new, spec.steps, spec.batch, torch.float32, spec.parts
        names = [name for name, read in self.reads.items() if read is not None]
        widths = [aligned(self.input_sizes[name]) for name in names]
        if spec.norm:
            slots, width = len(names), max(widths)
            places = [(slot * parts, 0) for slot in range(slots)]
            self.slots = new(slots * parts, B, self.gates // parts)  # the gradients now
            self.stats = new(T, B, STATS, dtype=f32)
            first = self.columns["U", self.l]  # the log of gradients takes the place of the log of U·h
            self.ds = self.products[:T, :, first : first + self.gates]
        else:
            slots, width = 1, sum(widths)
            places = [(0, sum(widths[:i])) for i in range(len(names))]
            self.s = new(T, B, aligned(self.gates))
            self.ds = self.s[..., : self.gates]  # a step's gradient takes the place of its pre-activations
        self.matrix = new(slots * parts, self.gates // parts, width).zero_()
        self.back = new(slots * parts, B, width)
        self.blocks: dict[str, Tensor] = {}
        self.via: dict[str, Tensor] = {}
        for name, (slot, column) in zip(names, places):
            span = slice(column, column + self.input_sizes[name])
            self.blocks[name] = self.matrix[slot : slot + parts].view(self.gates, width)[:, span]
            self.via[name] = self.back[slot : slot + parts, :, span]
        self.c_log = new(T + 1, B, self.H)
        self.d_hidden = new(T, B, self.H)
        self.d_h, self.d_c = new(B, self.H, dtype=f32), new(B, self.H, dtype=f32)

    def multiply(self, t: int) -> None:
        """h after step t times the matrices that read it; that of the layer above may see only part of it."""
        into = self.products[t + 1 if self.product_step else 0]
        if self.h_seen is None:
            torch.mm(self.h[t + 1], self.readers.t(), out=into)
            return
        W = self.columns.get(("V", self.l - 1), self.columns["U", self.l])
        torch.mm(self.h_seen, self.readers[:W].t(), out=into[:, :W])
        torch.mm(self.h[t + 1], self.readers[W:].t(), out=into[:, W:])

    def gradient_at(self, spec: Spec, t: int) -> Tensor:
        """(slots · parts, B, 4H / parts): the left operand of the product backwards."""
        if spec.norm:
            return self.slots
        return self.ds[t].unflatten(1, (spec.parts, -1)).transpose(0, 1)

    def packed(self, name: str, layers: Sequence[Layer]) -> Tensor:
        """(4H, size): one of its matrices, as the product forwards has it."""
        read = self.reads[name]
        assert read is not None
        first = layers[read].columns[name, self.l]
        return layers[read].readers[first : first + self.gates]

    def packing(self, w: LayerWeights, layers: Sequence[Layer]) -> Pairs:
        """What to copy where."""
        pairs: Pairs = [(self.bias, w.b)]
        for name, read in self.reads.items():
            matrix: Tensor = getattr(w, name)
            if read is not None:
                pairs.append((self.packed(name, layers), matrix[: self.gates]))
            if name in self.detector:
                pairs.append((self.detector[name], matrix[-1]))
        return pairs + [(gain, getattr(w, name)) for name, gain in self.gains.items() if gain is not None]
