"""What the sparse engine notes of a call for its backward pass, and the operations on rows that both passes share."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options
from hmrnn.ops.reference import LAYER_NORM_EPS

LARGE = 2**19  # numbers in a matrix worth packing
aten, mkldnn = torch.ops.aten, torch.ops.mkldnn


@dataclasses.dataclass
class Call:
    """One call of the engine, apart from the tensors that carry gradients. What steers the loop lives on the host."""

    T: int
    B: int
    options: Options
    indices: Tensor | None  # (T, B), for symbols
    active: Tensor | None  # (T, B) bool; False in the padding
    slope: Tensor | float
    lower: torch.dtype | None  # of the products, under autocast
    forced: np.ndarray | None  # (T, B, L-1), NaN where free
    kept: Sequence[Tensor] | None = None  # L of (T, B, H_l): the units that zoneout keeps from moving
    seen: Sequence[Tensor] | None = None  # L-1 of (B, H_l): what the gates of the layer above see of each
    traces_z: bool = False  # is the gradient of any boundary state wanted?
    z: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # (T+1, B, L-1) bool, the initial one first
    gate: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # the same of the top-down input
    decided: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # (T, B, L-1) bool, by the detectors

    @property
    def zones_out(self) -> bool:
        return self.kept is not None or self.options.zoneout > 0

    def share_kept(self, l: int, t: int, dtype: torch.dtype) -> Tensor | float:
        """How much of its old c each unit of layer l keeps at step t when it moves: (B, H), or the same for all."""
        return self.options.zoneout if self.kept is None else self.kept[l][t].to(dtype)


class Move(NamedTuple):
    """The rows of a layer that change at one step. Those that are marked come last, and of these the unfed ones."""

    rows: Tensor | None  # (n,); None: all of them, in the order of the batch
    host_rows: np.ndarray  # (n,)
    fed: int  # how many are fed
    flushed: slice | Tensor | None  # where FLUSH stands among ``rows``: an index if those are all; None: nowhere
    gated: slice | Tensor | None  # where rows that read the layer above stand
    gated_rows: Tensor | None  # those rows; None: all of them

    @staticmethod
    def of(fed: np.ndarray, marked: np.ndarray, options: Options, device: torch.device) -> Move | None:
        """From masks (B,): rows that are fed from below, and rows that are marked; None if nothing changes.

        With FLUSH marked rows flush, fed or not. If top-down input depends on boundaries, marked rows have it; without
        FLUSH these must all be fed.
        """
        rows: Tensor | None = None
        where: slice | Tensor | None = None
        if fed.all():
            host_rows, count = np.arange(len(fed)), len(fed)
            where = marked_rows = index_tensor(marked.nonzero()[0], device) if marked.any() else None
        else:
            plain, both, unfed = (fed > marked).nonzero()[0], (fed & marked).nonzero()[0], (marked > fed).nonzero()[0]
            host_rows, count = np.concatenate([plain, both, unfed]), len(plain) + len(both)
            if len(host_rows) == 0:
                return None
            rows = marked_rows = index_tensor(host_rows, device)
            if len(plain) < len(rows):
                where, marked_rows = slice(len(plain), len(rows)), rows[len(plain) :]
        gates: dict[str, tuple[slice | Tensor | None, Tensor | None]] = {
            "always": (slice(None), rows), "none": (None, None)
        }  # fmt: skip
        gated = gates.get(options.gate, (where, marked_rows))
        return Move(rows, host_rows, count, where if options.flush else None, *gated)


class Rows:
    """A tensor that grows, some rows at a time; or, if nothing is to be kept, the same few rows again and again."""

    def __init__(self, width: int, capacity: int, like: Tensor, keep: bool) -> None:
        self.data = like.new_empty(capacity, width)
        self.count = 0
        self.keep = keep

    def take(self, n: int) -> Tensor:
        """The next n rows, for the caller to write."""
        if not self.keep:
            return self.data[:n]
        start, self.count = self.count, self.count + n
        if self.count > self.data.shape[0]:
            larger = self.data.new_empty(max(self.count, 2 * start), self.data.shape[1])
            larger[:start] = self.data[:start]
            self.data = larger
        return self.data[start : self.count]

    def note(self, rows: Tensor) -> None:
        """Keep a copy of ``rows``, if anything is to be kept."""
        if self.keep:
            self.take(rows.shape[0]).copy_(rows)

    def release(self) -> Tensor:
        """All rows taken so far, in no more than twice the memory they need."""
        data, self.data = self.data, self.data.new_empty(0)
        return data[: self.count] if 2 * self.count > len(data) else data[: self.count].clone()


class Log:
    """What happened in one layer, as far as the backward pass needs it. Events 0 to B-1 are the initial state."""

    def __init__(
        self, keep: bool, products: bool, w: LayerWeights, below: LayerWeights | None, rows: int, B: int
    ) -> None:
        def log(width: int, kept: bool) -> Rows:
            return Rows(width, B + rows if kept else B, w.b, kept)

        H, R = w.hidden_size, len(w.b)
        self.moves: list[Move | None] = []  # T of them
        self.states = log(2 * H, keep)  # h and c
        self.gates = log(R, keep)  # f, i, o, g
        self.squashed = log(H, keep)  # tanh of the cell
        self.recurrent = log(R, keep and products)  # U·h
        self.downward = log(0 if below is None else len(below.b), keep and products)  # V·h for the layer below
        self.read = log(R, keep and w.gain_W is not None and below is not None)  # W·h of the layer below

    def release(self) -> list[Tensor]:
        """The tensors, for autograd to keep; :class:`Events` takes them back."""
        logs = (self.states, self.gates, self.squashed, self.recurrent, self.downward, self.read)
        return [rows.release() for rows in logs]


class Events:
    """A layer's log in the backward pass. Below, "the events" are all but those of the initial state, N of them."""

    def __init__(self, log: Log, tensors: Iterator[Tensor], T: int, B: int) -> None:
        self.states = next(tensors)  # (B + N, 2H)
        self.gates, self.squashed = next(tensors), next(tensors)  # (N, R), (N, H)
        self.recurrent, self.downward = next(tensors), next(tensors)  # (B + N but for the last step's, ...), or empty
        self.read = next(tensors)  # (N, R), or empty
        self.counts = [0 if move is None else len(move.host_rows) for move in log.moves]  # at each step
        self.starts = [0, *itertools.accumulate(self.counts)]
        N = self.starts[-1]
        self.times = np.repeat(np.arange(T), self.counts)  # (N,)
        self.rows = np.concatenate([np.empty(0, dtype=np.int64), *(move.host_rows for move in log.moves if move)])
        numbers = np.zeros((T + 1, B), dtype=np.int64)
        numbers[0] = np.arange(B)
        numbers[self.times + 1, self.rows] = np.arange(B, B + N)
        self.current = np.maximum.accumulate(numbers)  # (T+1, B) the event that each row is in before each step
        left = self.current[self.times, self.rows]  # (N,) the event that each event ends
        self.left = None if np.array_equal(left, np.arange(N)) else self.index(left)  # None: all rows, at every step

    def index(self, numbers: np.ndarray) -> Tensor:
        return index_tensor(numbers, self.states.device)

    def ended(self, a: Tensor, part: slice) -> Tensor:
        """Of ``a``, which has a row per event, the initial ones first, the rows of those that ``part`` ended."""
        return pick(a, part if self.left is None else self.left[part])

    def derivatives(self, here: slice, unflushed: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """For some of the events: h and c before them (n, 2H), and how h, c and s depend on each other.

        That is, (n, H) each but the first: of c to the pre-activations of f and i (n, 2, H) and of g; of h to that of o
        and, but for layer norm, to c; of c to c before; and f·c. ``unflushed`` (n, 1) is 0 on FLUSH, which uses no f.
        """
        squashed, H = self.squashed[here], self.squashed.shape[1]
        f, i, o, g = self.gates[here, : 4 * H].chunk(4, dim=1)
        old = self.ended(self.states, here)
        kept = f * old[:, H:]
        fi = kept.new_empty(len(kept), 2, H)
        torch.addcmul(kept, kept, f, value=-1, out=fi[:, 0])
        aten.sigmoid_backward.grad_input(g, i, grad_input=fi[:, 1])
        if unflushed is not None:
            f = f * unflushed
            fi[:, 0] *= unflushed
        o_and_c = aten.sigmoid_backward(squashed, o), aten.tanh_backward(o, squashed)
        return old, (fi, aten.tanh_backward(i, g), *o_and_c, f, kept)

    def h(self, numbers: Tensor | slice) -> Tensor:
        """(n, H): h after those events, numbered from the initial ones on."""
        return pick(self.states[:, : self.states.shape[1] // 2], numbers)


def zoned_out(derivatives: tuple[Tensor, ...], share: Tensor | float) -> tuple[Tensor, ...]:
    """Those of :meth:`Events.derivatives` where ``share`` (n, H) of c before stays: the rest alone moves."""
    fi, g, o, c, forget, kept = derivatives
    moving = 1 - share
    fi = fi * (moving[:, None] if isinstance(moving, Tensor) else moving)
    return fi, g * moving, o, c, share + moving * forget, kept * moving


class Matrix:
    """A matrix (size, R) that rows are multiplied by, laid out once for all of its products.

    A BLAS library packs a matrix anew for every product, which for a few rows takes longer than the product itself;
    oneDNN packs it once. It takes 0.1 ms to start, so that it gets large matrices only.
    """

    def __init__(self, matrix: Tensor, dtype: torch.dtype) -> None:
        onednn = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
        self.packs = matrix.device.type == "cpu" and onednn and dtype == torch.float32 and matrix.numel() >= LARGE
        self.data = mkldnn._reorder_linear_weight(matrix.t()) if self.packs else matrix.to(dtype).contiguous()

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """rows·matrix, (n, R)."""
        if not self.packs:
            return multiply(rows, self.data, out)
        if rows.shape[0] == 0:
            return rows.new_empty(0, self.data.shape[0])
        product = mkldnn._linear_pointwise.default(rows, self.data, None, "none", [], "")
        return product if out is None else out.copy_(product)


def multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a·b in the dtype of b, the result in the dtype of a."""
    if a.dtype == b.dtype:
        return torch.mm(a, b, out=out)
    product = (a.to(b.dtype) @ b).to(a.dtype)
    return product if out is None else out.copy_(product)


def pick(a: Tensor, rows: Tensor | slice | None) -> Tensor:
    """Some rows of ``a``; itself for None, a view for a slice."""
    if rows is None:
        return a
    return a[rows] if isinstance(rows, slice) else a.index_select(0, rows)


def add(a: Tensor, rows: Tensor | slice | None, b: Tensor) -> None:
    """Add to some rows of ``a``, all for None, in place. No row comes twice."""
    if rows is None:
        a.add_(b)
    elif isinstance(rows, slice):
        a[rows].add_(b)
    elif a.dim() == 1:
        a.index_add_(0, rows, b)
    else:  # faster than index_add_ where rows are long
        a.index_copy_(0, rows, a.index_select(0, rows).add_(b))


def clear(a: Tensor, rows: Tensor | slice) -> None:
    """Make some rows of ``a`` zero, in place."""
    if isinstance(rows, slice):
        a[rows].zero_()
    else:
        a.index_fill_(0, rows, 0)


def put(a: Tensor, rows: Tensor | None, b: Tensor) -> None:
    """Replace some rows of ``a``, all for None, in place."""
    if rows is None:
        a.copy_(b)
    else:
        a.index_copy_(0, rows, b)


def replaced(a: Tensor, rows: Tensor | None, b: Tensor) -> Tensor:
    """``a`` with some of its rows replaced in place; for None, ``b`` itself."""
    return b if rows is None else a.index_copy_(0, rows, b)


def index_tensor(rows: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(rows).to(device)


def norm_backward(d: Tensor, raw: Tensor, gain: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a layer normalisation's input, gain and bias."""
    raw = raw.contiguous()
    _, mean, rstd = torch.native_layer_norm(raw, gain.shape, None, None, LAYER_NORM_EPS)
    wanted = [True, True, bias is not None]
    return aten.native_layer_norm_backward(d.contiguous(), raw, gain.shape, mean, rstd, gain, bias, wanted)


def dot_normalised(d: Tensor, raw: Tensor, gain: Tensor) -> Tensor:
    """(n,): ⟨d, layer_norm(raw) · gain⟩, row by row."""
    return torch.linalg.vecdot(d, torch.nn.functional.layer_norm(raw, gain.shape, gain, eps=LAYER_NORM_EPS))
