"""The log that the sparse engine's forward pass keeps for its backward pass, and operations on rows for both."""

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

LARGE = 2**19  # elements from which on a matrix is packed by oneDNN
aten, mkldnn = torch.ops.aten, torch.ops.mkldnn


@dataclasses.dataclass
class Call:
    """One call of the engine, without the tensors that have gradients. Boundaries are NumPy arrays for the loops."""

    T: int
    B: int
    options: Options
    indices: Tensor | None  # (T, B), for symbols
    active: Tensor | None  # (T, B) bool; False in the padding
    slope: Tensor | float
    lower: torch.dtype | None  # dtype of the products under autocast
    forced: np.ndarray | None  # (T, B, L-1), NaN: not forced
    temperature: Tensor | float = 1.0
    noise: Tensor | None = None  # (T, B, L-1), for the gradient of "gumbel"
    kept: Sequence[Tensor] | None = None  # L of (T, B, H_l): 1 for units whose c zoneout keeps
    seen: Sequence[Tensor] | None = None  # L-1 of (B, H_l): factors of h where the gates of the layer above read it
    traces_z: bool = False  # whether the gradient of any boundary state is wanted
    # set by the forward pass:
    z: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # (T+1, B, L-1) bool, the initial z first
    gate: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # (T+1, B, L-1) bool: top-down gates
    decided: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))  # (T, B, L-1) bool, before "hold"

    @property
    def zones_out(self) -> bool:
        return self.kept is not None or self.options.zoneout > 0

    def share_kept(self, l: int, t: int, dtype: torch.dtype) -> Tensor | float:
        """The share of its old c that each unit of layer l keeps on a change at step t: (B, H), or one for all."""
        return self.options.zoneout if self.kept is None else self.kept[l][t].to(dtype)


class Move(NamedTuple):
    """The rows of a layer that change at one step.

    A row is *fed* if it reads the layer below (z_below = 1), and *marked* if its own last boundary makes it flush or
    read the layer above. The order is: fed only, fed and marked, marked only; or that of the batch if all are fed.
    """

    rows: Tensor | None  # (n,); None: all rows in the order of the batch
    host_rows: np.ndarray  # (n,) the same in NumPy
    fed: int  # number of fed rows
    flushed: slice | Tensor | None  # positions in ``rows`` of those that flush; None: none does
    gated: slice | Tensor | None  # positions in ``rows`` of those that read the layer above; None: none does
    gated_rows: Tensor | None  # those rows themselves; None: all rows

    @staticmethod
    def of(fed: np.ndarray, marked: np.ndarray, options: Options, device: torch.device) -> Move | None:
        """The move given by two masks (B,); None if no row changes. Without FLUSH all marked rows must be fed."""
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
            if len(plain) < len(host_rows):
                where, marked_rows = slice(len(plain), len(host_rows)), rows[len(plain) :]
        flushed = where if options.flush else None
        if options.top_down == "always":
            where, marked_rows = slice(None), rows
        elif options.top_down == "none":
            where = marked_rows = None
        return Move(rows, host_rows, count, flushed, where, marked_rows)


class Rows:
    """A tensor to which rows are appended; with ``keep=False`` a buffer whose first rows are reused."""

    def __init__(self, width: int, capacity: int, like: Tensor, keep: bool) -> None:
        self.data = like.new_empty(capacity, width)
        self.count = 0
        self.keep = keep

    def take(self, n: int) -> Tensor:
        """The next n rows, uninitialised, for the caller to write."""
        if not self.keep:
            return self.data[:n]
        start, self.count = self.count, self.count + n
        if self.count > self.data.shape[0]:
            larger = self.data.new_empty(max(self.count, 2 * start), self.data.shape[1])
            larger[:start] = self.data[:start]
            self.data = larger
        return self.data[start : self.count]

    def note(self, rows: Tensor) -> None:
        """Append a copy of ``rows``; nothing with ``keep=False``."""
        if self.keep:
            self.take(rows.shape[0]).copy_(rows)

    def release(self) -> Tensor:
        """All rows taken so far, in at most twice the memory they need."""
        data, self.data = self.data, self.data.new_empty(0)
        return data[: self.count] if 2 * self.count > len(data) else data[: self.count].clone()


class Log:
    """What the backward pass needs of one layer. An *event* is a change of one row's h and c.

    Events 0 to B-1 are the initial state of each row.
    """

    def __init__(
        self, keep: bool, products: bool, w: LayerWeights, below: LayerWeights | None, rows: int, B: int
    ) -> None:
        def log(width: int, kept: bool) -> Rows:
            return Rows(width, B + rows if kept else B, w.b, kept)

        H, R = w.hidden_size, len(w.b)
        self.moves: list[Move | None] = []  # T items
        self.states = log(2 * H, keep)  # h and c
        self.gates = log(R, keep)  # f, i, o, g
        self.squashed = log(H, keep)  # tanh of the cell
        self.recurrent = log(R, keep and products)  # U·h
        self.downward = log(0 if below is None else len(below.b), keep and products)  # V·h for the layer below
        self.read = log(R, keep and w.gain_W is not None and below is not None)  # W·h of the layer below
        # (T·B, N) the hidden layer of the detector before gelu
        self.detector = log(0 if w.D2 is None else w.D2.shape[1], keep and w.D2 is not None)

    def release(self) -> list[Tensor]:
        """The tensors, for autograd to save; :class:`Events` reads them in this order."""
        logs = (self.states, self.gates, self.squashed, self.recurrent, self.downward, self.read, self.detector)
        return [rows.release() for rows in logs]


class Local(NamedTuple):
    """Local derivatives at n events, (n, H) unless stated otherwise. s: pre-activations; c': c before the event."""

    fi: Tensor  # (n, 2, H) ∂c/∂s of the forget and the input gate
    g: Tensor  # ∂c/∂s of the candidate g
    o: Tensor  # ∂h/∂s of the output gate
    c: Tensor  # ∂h/∂c; with layer norm ∂h/∂(normalised c)
    forget: Tensor  # ∂c/∂c'
    kept: Tensor  # f·c'
    moved: Tensor | None  # (n, 2H) change of h and c
    below: Tensor | None  # (n, H below) h of the layer below
    downward: Tensor | None  # (n, 4H) V·h of the layer above


class Events:
    """A layer's log in the backward pass: B initial events and N later ones, which the passes index from 0 to N-1."""

    def __init__(self, log: Log, tensors: Iterator[Tensor], T: int, B: int) -> None:
        self.states = next(tensors)  # (B + N, 2H)
        self.gates, self.squashed = next(tensors), next(tensors)  # (N, R), (N, H)
        self.recurrent, self.downward = next(tensors), next(tensors)  # (B + N without the last step's, ·), or empty
        self.read = next(tensors)  # (N, R), or empty
        self.detector = next(tensors)  # (T·B, units of the detector's hidden layer), or empty
        self.counts = [0 if move is None else len(move.host_rows) for move in log.moves]  # events at each step
        self.starts = [0, *itertools.accumulate(self.counts)]
        N = self.starts[-1]
        self.times = np.repeat(np.arange(T), self.counts)  # (N,)
        self.rows = np.concatenate([np.empty(0, dtype=np.int64), *(move.host_rows for move in log.moves if move)])
        numbers = np.zeros((T + 1, B), dtype=np.int64)
        numbers[0] = np.arange(B)
        numbers[self.times + 1, self.rows] = np.arange(B, B + N)
        self.current = np.maximum.accumulate(numbers)  # (T+1, B) the last event of each row before each step
        previous = self.current[self.times, self.rows]  # (N,) for each event the one before it in its row
        # None: all rows change at every step, so event n of the later ones follows event n of all
        self.previous = None if np.array_equal(previous, np.arange(N)) else self.index(previous)

    def index(self, numbers: np.ndarray) -> Tensor:
        return index_tensor(numbers, self.states.device)

    def before(self, a: Tensor, part: slice) -> Tensor:
        """For the later events ``part``, the rows of ``a`` (one per event, initial ones included) one event before."""
        return pick(a, part if self.previous is None else self.previous[part])

    def derivatives(self, here: slice, unflushed: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """For the later events ``here``: h and c before them (n, 2H), and the first six fields of :class:`Local`.

        ``unflushed`` (n, 1) is 0 on FLUSH, which does not use f; None: no event is a FLUSH.
        """
        squashed, H = self.squashed[here], self.squashed.shape[1]
        f, i, o, g = self.gates[here, : 4 * H].chunk(4, dim=1)
        old = self.before(self.states, here)
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
        """(n, H): h after the events ``numbers``, initial ones included."""
        return pick(self.states[:, : self.states.shape[1] // 2], numbers)


def zoned_out(derivatives: tuple[Tensor, ...], share: Tensor | float) -> tuple[Tensor, ...]:
    """The result of :meth:`Events.derivatives` if zoneout keeps ``share`` (n, H) of the old c."""
    fi, g, o, c, forget, kept = derivatives
    moving = 1 - share
    fi = fi * (moving[:, None] if isinstance(moving, Tensor) else moving)
    return fi, g * moving, o, c, share + moving * forget, kept * moving


class Matrix:
    """A matrix (size, R) for many products with few rows each.

    BLAS packs the matrix for every product, which takes longer than multiplying a few rows. oneDNN packs it once, but a
    product takes 0.1 ms to start, so only matrices of at least LARGE elements use it.
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
    """Some rows of ``a``: a copy for an index, a view for a slice, ``a`` itself for None."""
    if rows is None:
        return a
    return a[rows] if isinstance(rows, slice) else a.index_select(0, rows)


def add(a: Tensor, rows: Tensor | slice | None, b: Tensor) -> None:
    """Add ``b`` to some rows of ``a`` in place; None: all rows. ``rows`` must not repeat."""
    if rows is None:
        a.add_(b)
    elif isinstance(rows, slice):
        a[rows].add_(b)
    elif a.dim() == 1:
        a.index_add_(0, rows, b)
    else:  # faster than index_add_ for long rows
        a.index_copy_(0, rows, a.index_select(0, rows).add_(b))


def clear(a: Tensor, rows: Tensor | slice) -> None:
    """Set some rows of ``a`` to zero in place."""
    if isinstance(rows, slice):
        a[rows].zero_()
    else:
        a.index_fill_(0, rows, 0)


def put(a: Tensor, rows: Tensor | None, b: Tensor) -> None:
    """Replace some rows of ``a`` by ``b`` in place; None: all rows."""
    if rows is None:
        a.copy_(b)
    else:
        a.index_copy_(0, rows, b)


def replaced(a: Tensor, rows: Tensor | None, b: Tensor) -> Tensor:
    """``a`` with some rows replaced by ``b`` in place; ``b`` itself if rows is None."""
    return b if rows is None else a.index_copy_(0, rows, b)


def index_tensor(rows: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(rows).to(device)


def norm_backward(d: Tensor, raw: Tensor, gain: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the input, gain and bias of a layer normalisation, ``d`` being that of its output."""
    raw = raw.contiguous()
    _, mean, rstd = torch.native_layer_norm(raw, gain.shape, None, None, LAYER_NORM_EPS)
    wanted = [True, True, bias is not None]
    return aten.native_layer_norm_backward(d.contiguous(), raw, gain.shape, mean, rstd, gain, bias, wanted)


def dot_normalised(d: Tensor, raw: Tensor, gain: Tensor) -> Tensor:
    """(n,): ⟨d, layer_norm(raw) · gain⟩, row by row."""
    return torch.linalg.vecdot(d, torch.nn.functional.layer_norm(raw, gain.shape, gain, eps=LAYER_NORM_EPS))
