"""What every engine takes and gives: the engines differ in speed, never in meaning."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hmrnn.errors import InputError
from hmrnn.ops.estimators import Boundary, OnCopy

Backward = Callable[..., Any]


class LayerWeights(NamedTuple):
    """The parameters of one layer, named as in the paper; rows in the order f, i, o, g, z.

    R is 4H + 1 in every layer but the top one, which has no detector: there R is 4H and V is None. The gains exist with
    layer normalisation only; they span the 4H gate rows, never the detector's.
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

    @property
    def hidden_size(self) -> int:
        return self.U.shape[1]

    @property
    def has_detector(self) -> bool:
        return self.V is not None


class State(NamedTuple):
    """What an HM-LSTM carries from one time step to the next."""

    h: tuple[Tensor, ...]  # L of (B, H_l)
    c: tuple[Tensor, ...]  # L of (B, H_l)
    z: Tensor  # (B, L-1)

    def detach(self) -> State:
        """The same values, cut off from the graph: how truncated backpropagation carries a state over."""
        return State(tuple(h.detach() for h in self.h), tuple(c.detach() for c in self.c), self.z.detach())


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
    zoneout: float = 0.0
    """Share of its old c that a layer keeps when it moves; where masks say which units keep theirs, those count."""
    straight_through: bool = False
    """Where boundaries are forced, send their gradient to the detector as if it had chosen them.

    Off, a forced boundary is a given: its gradient goes to the tensor that forced it, and none reaches the detector."""


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
