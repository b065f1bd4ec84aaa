"""The types that every engine takes and returns: weights, state, symbols, options and result."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.ops.estimators import Boundary, OnCopy

TopDown = Literal["boundary", "pending", "always", "none"]
TOP_DOWN: tuple[str, ...] = get_args(TopDown)
Backward = Callable[..., Any]


class LayerWeights(NamedTuple):
    """The parameters of one layer, named as in the paper; rows in the order f, i, o, g, z.

    R is 4H + 1 in every layer but the top one, which has no detector: there R is 4H. V is None in the top layer and in
    every layer of a network without top-down input. The gains exist with layer normalisation only; they span the 4H
    gate rows, never the detector's. A detector with a hidden layer of N units has D1, d1, D2 and d2 instead of the last
    row of the matrices, which then all have 4H rows.
    """

    U: Tensor  # (R, H)             from the layer itself, one step ago
    W: Tensor  # (R, size below)    from the layer below, now
    b: Tensor  # (R,)
    V: Tensor | None = None  # (R, H above)  from the layer above, one step ago
    gain_U: Tensor | None = None  # (4H,)
    gain_W: Tensor | None = None  # (4H,)
    gain_V: Tensor | None = None  # (4H,)
    gain_c: Tensor | None = None  # (H,)
    bias_c: Tensor | None = None  # (H,)
    D1: Tensor | None = None  # (N, H + H above + size below); without V there is no H above
    d1: Tensor | None = None  # (N,)
    D2: Tensor | None = None  # (1, N)
    d2: Tensor | None = None  # (1,)

    @property
    def hidden_size(self) -> int:
        return self.U.shape[1]

    @property
    def has_detector(self) -> bool:
        return self.D1 is not None or self.U.shape[0] > 4 * self.U.shape[1]

    def detector_rows(self, name: str) -> Tensor:
        """(K, size): the detector's last row of U, W or V or, with a hidden layer, the columns of D1 that read the
        same."""
        if self.D1 is None:
            rows: Tensor = getattr(self, name)[4 * self.hidden_size :]
            return rows
        own, below = self.U.shape[1], self.D1.shape[1] - self.W.shape[1]
        return self.D1[:, {"U": slice(own), "V": slice(own, below), "W": slice(below, None)}[name]]


def shapes(value: object) -> str:
    """The shapes of tensors in nested tuples, as ``repr`` shows them."""
    if isinstance(value, PackedSequence):
        return f"packed {tuple(value.data.shape)}"
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    return f"[{', '.join(map(shapes, value))}]" if isinstance(value, tuple) else repr(value)


class State(NamedTuple):
    """What an HM-LSTM carries from one time step to the next: pass it on whole, as ``rnn(more, state.detach())``.

    ``h`` and ``c`` are tuples of L tensors (B, H_l), the lowest layer first. ``z`` (B, L-1) holds the boundaries of the
    last step, and ``pending`` (B, L-1), with ``top_down="pending"``, the gates of the top-down input at the next step.
    """

    h: tuple[Tensor, ...]
    c: tuple[Tensor, ...]
    z: Tensor
    pending: Tensor | None = None  # None: equal to z

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={shapes(value)}' for name, value in self._asdict().items())})"

    def apply(self, function: Callable[..., Tensor], *others: State) -> State:
        """The state of what ``function`` gives for each tensor and, after it, those of ``others`` in the same place."""
        h, c = (tuple(map(function, *parts)) for parts in zip(self[:2], *(other[:2] for other in others)))
        gates = (None if parts[0] is None else function(*parts) for parts in zip(self[2:], *(o[2:] for o in others)))
        return State(h, c, *gates)  # type: ignore[arg-type]

    def detach(self) -> State:
        """The same values without their graph, for truncated backpropagation."""
        return self.apply(torch.Tensor.detach)

    def to(self, *args: Any, **kwargs: Any) -> State:
        """The state on another device or in another dtype, as by ``torch.Tensor.to``."""
        return self.apply(lambda a: a.to(*args, **kwargs))

    def named(self) -> dict[str, Tensor]:
        """The tensors by their names in checkpoints."""
        groups = zip(("h", "c", "z", "pending"), (self.h, self.c, (self.z,), (self.pending,)))
        return {f"{kind}.{l}": a for kind, group in groups for l, a in enumerate(group) if a is not None}

    def split(self, parts: int) -> list[State]:
        """The states of equal shares of the batch."""
        return [self.apply(lambda a, k=k: a.chunk(parts)[k]) for k in range(len(self.z.chunk(parts)))]

    def copy_(self, source: State, good: Tensor) -> None:
        """Copy ``source`` into the tensors of this state, where ``good`` is true."""
        self.apply(lambda mine, theirs: mine.copy_(torch.where(good, theirs, mine)), source)

    def keep(self, kept: Sequence[bool]) -> State:
        """The state with zeros for the sequences that are not kept."""
        mask = torch.tensor(kept, device=self.z.device)[:, None]
        return self.apply(lambda a: torch.where(mask, a, 0))


class Operation(enum.IntEnum):
    """What a layer did at a time step (equation 2)."""

    UPDATE = 0
    COPY = 1
    FLUSH = 2


class Symbols(NamedTuple):
    """Input given as indices of an embedding: engines may compute W·embedding once per symbol."""

    indices: Tensor  # (T, B), integers
    embedding: Tensor  # (number of symbols, size)

    @property
    def shape(self) -> torch.Size:
        return self.indices.shape


@dataclasses.dataclass(frozen=True)
class Variant:
    """Which cell it is: the paper's unless something else is said."""

    boundary: Boundary = "step"
    on_copy: OnCopy = "evaluate"
    flush: bool = True
    """Whether a boundary erases the cell at the next step; if False, zp counts as 0 in the choice of operation."""
    top_down: TopDown = "boundary"
    """When a layer reads the layer above: at the step after its own boundary ("boundary"), from there until it next
    updates ("pending"), at every step ("always") or never ("none")."""
    copy: bool = True
    """Whether a layer copies its state until the layer below ends a segment; if False, zb counts as 1 everywhere."""
    detector_hidden: int = 0
    """Units in the hidden layer of each detector; 0 as in the paper: no hidden layer."""
    gate: TopDown = dataclasses.field(init=False)
    """``top_down``, but "boundary" for "pending" if the two mean the same: if a layer always changes at the step after
    its boundary."""

    def __post_init__(self) -> None:
        same = self.top_down == "pending" and (self.flush or not self.copy)
        object.__setattr__(self, "gate", "boundary" if same else self.top_down)

    def flags(self) -> dict[str, bool]:
        """What the Triton kernels are compiled for."""
        return {
            "SOFT": self.boundary == "soft", "HOLD": self.on_copy == "hold", "FLUSH": self.flush, "COPY": self.copy,
            "PENDING": self.gate == "pending",
        }  # fmt: skip

    def moved(self, below: Tensor, own: Tensor) -> Tensor:
        """Whether a layer moves, by the boundaries of the layer below now and its own one step ago."""
        return below | own if self.flush else below

    def operations(self, boundaries: Tensor, before: Tensor, active: Tensor | None = None) -> Tensor:
        """(T, B, L): the operation of every layer, from boundaries (T, B, L-1) and those before the first step.

        "soft" boundaries count as 1 above one half. Where ``active`` (T, B) is False the operation is COPY, whatever
        the cell can do.
        """
        z = boundaries > 0.5
        before = torch.cat([before[None] > 0.5, z[:-1]])  # (T, B, L-1): z of the same layer, one step ago
        flushed = F.pad(before if self.flush else torch.zeros_like(before), (0, 1))
        fed = F.pad(z if self.copy else torch.ones_like(z), (1, 0), value=True)
        result = torch.where(flushed, Operation.FLUSH, torch.where(fed, Operation.UPDATE, Operation.COPY))
        return result if active is None else torch.where(active[..., None], result, Operation.COPY)


PAPER = Variant()


@dataclasses.dataclass(frozen=True)
class Options:
    """How the recurrence behaves, apart from its weights."""

    variant: Variant = PAPER
    slope: Tensor | float = 1.0
    """a of the hard sigmoid."""
    temperature: Tensor | float = 1.0
    """Temperature of the relaxation that gives "gumbel" its gradient."""
    zoneout: float = 0.0
    """Share of its old c that a unit keeps on UPDATE and FLUSH; masks (the argument ``kept``) replace it."""
    straight_through: bool = False
    """Whether the gradient of a forced boundary goes to the detector, as if it had chosen the boundary. If False, it
    goes to the tensor of forced boundaries."""


class Result(NamedTuple):
    """The result of a pass over T steps. Padding is zero; the state is that after each sequence's own last step."""

    hidden: tuple[Tensor, ...]  # L of (T, B, H_l)
    boundaries: Tensor  # (T, B, L-1)
    probabilities: Tensor  # (T, B, L-1), the detectors' z̃
    state: State


def within(lengths: Tensor, T: int) -> Tensor:
    """(T, B): False in the padding of sequences of these lengths."""
    return torch.arange(T, device=lengths.device)[:, None] < lengths


class Step(NamedTuple):
    """The result of one step."""

    state: State
    changed: Tensor  # (B, L) bool: True for UPDATE and FLUSH
    probabilities: Tensor  # (B, L-1)


def first_only(message: str) -> Callable[[Backward], Backward]:
    """Decorator of a hand-written backward pass: InputError with ``message`` under ``create_graph=True``.

    ``once_differentiable`` alone raises nothing if the incoming gradient does not require one, as that of a sum: second
    derivatives would then be wrong without an error.
    """

    def decorate(backward: Backward) -> Backward:
        once: Backward = once_differentiable(backward)

        @functools.wraps(backward)
        def checked(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():  # autograd enables it only for create_graph=True
                raise InputError(message)
            return once(ctx, *grads)

        return checked

    return decorate


def readable(a: Tensor) -> bool:
    """Whether the values of a tensor can be looked at now."""
    if a.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if not a.is_cuda:
        return True
    with torch.cuda.device(a.device):
        return not torch.cuda.is_current_stream_capturing()
