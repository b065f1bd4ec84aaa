"""What every engine takes and gives: the engines differ in speed, never in meaning."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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


class State(NamedTuple):
    """What an HM-LSTM carries from one time step to the next."""

    h: tuple[Tensor, ...]  # L of (B, H_l)
    c: tuple[Tensor, ...]  # L of (B, H_l)
    z: Tensor  # (B, L-1)
    pending: Tensor | None = None  # (B, L-1) the gates of the top-down input with top_down="pending"; None: z

    def apply(self, function: Callable[[Tensor], Tensor]) -> State:
        """The state of ``function`` of each tensor."""
        h, c = (tuple(function(a) for a in part) for part in (self.h, self.c))
        return State(h, c, function(self.z), None if self.pending is None else function(self.pending))

    def detach(self) -> State:
        """The same values without their graph: how truncated backpropagation carries a state over."""
        return self.apply(torch.Tensor.detach)


class Symbols(NamedTuple):
    """An input given as indices: engines may look W·embedding up in a table instead of multiplying."""

    indices: Tensor  # (T, B), integers
    embedding: Tensor  # (number of symbols, size)


@dataclasses.dataclass(frozen=True)
class Options:
    """How the recurrence behaves, apart from its weights."""

    slope: Tensor | float = 1.0
    """a of the hard sigmoid."""
    boundary: Boundary = "step"
    on_copy: OnCopy = "evaluate"
    flush: bool = True
    """Whether a boundary erases the cell at the next step; if False, zp counts as 0 in the choice of operation."""
    top_down: TopDown = "boundary"
    """When a layer reads the layer above: at the step after its own boundary, from there until it next moves, always or
    never."""
    copy: bool = True
    """Whether a layer stands still until the layer below ends a segment; if False, zb counts as 1 everywhere."""
    detector_hidden: int = 0
    """Units in the hidden layer of each detector; 0: the paper's detectors, which have none."""
    zoneout: float = 0.0
    """Share of its old c that a layer keeps when it moves; where masks say which units keep theirs, those count."""
    straight_through: bool = False
    """Where boundaries are forced, send their gradient to the detector as if it had chosen them.

    Off, a forced boundary is a given: its gradient goes to the tensor that forced it, and none reaches the detector."""

    @property
    def of_the_paper(self) -> bool:
        """Whether the cell is the paper's."""
        return self.flush and self.copy and self.gate == "boundary"

    @property
    def gate(self) -> TopDown:
        """``top_down``, but "boundary" for "pending" where a layer always moves at the step after its boundary."""
        return "boundary" if self.top_down == "pending" and (self.flush or not self.copy) else self.top_down


class Result(NamedTuple):
    """What a pass over T steps gives. Padding holds zeros; the state of each sequence is the one at its own end."""

    hidden: tuple[Tensor, ...]  # L of (T, B, H_l)
    boundaries: Tensor  # (T, B, L-1)
    probabilities: Tensor  # (T, B, L-1), the detectors' z̃
    state: State


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What autocast has products computed in; None where it is off, or where a device (meta) has none."""
    kind = device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def first_only(message: str) -> Callable[[Backward], Backward]:
    """Make a backward pass raise InputError with ``message`` under ``create_graph=True``.

    One written by hand gives first derivatives. ``once_differentiable`` alone says nothing where the gradient that
    comes in wants none itself, as that of a sum: the graph just ends there, and second derivatives lack the rest.
    """

    def decorate(backward: Backward) -> Backward:
        once: Backward = once_differentiable(backward)

        @functools.wraps(backward)
        def checked(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():  # which autograd switches on for create_graph alone
                raise InputError(message)
            return once(ctx, *grads)

        return checked

    return decorate
