"""The boundary detector: equations 8 and 9, their straight-through gradient, and the schedules of its slope."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

Boundary = Literal["step", "sample", "soft"]
OnCopy = Literal["hold", "evaluate"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
ON_COPY: tuple[str, ...] = get_args(OnCopy)


def straight_through(probability: Tensor, value: Tensor) -> Tensor:
    """``value``, whose gradient goes to ``probability`` unchanged (Bengio et al., 2013).

    What is added is exactly zero, and has the gradient. It is not a ``torch.autograd.Function``, so that torch.func,
    torch.compile and torch.export see through it.
    """
    return value.detach() + (probability - probability.detach())


def hard_sigmoid(s: Tensor, slope: Tensor | float) -> Tensor:
    """``max(0, min(1, (a·s + 1) / 2))``: its gradient is a/2 inside the linear range and 0 outside."""
    return ((slope * s + 1) / 2).clamp(0, 1)


def decide(probability: Tensor, boundary: Boundary, noise: Tensor | None = None) -> Tensor:
    """f_bound of equation 8: the boundary state z of a detector that says ``probability``.

    ``noise``, uniform in [0, 1), turns "sample" into a draw; without it the likelier value is taken, as in "step".
    """
    if boundary == "soft":
        return probability
    threshold = noise if boundary == "sample" and noise is not None else 0.5
    return straight_through(probability, (probability > threshold).to(probability.dtype))


def annealed_slope(epoch: float, rate: float, maximum: float) -> float:
    """The paper's schedule: ``a = min(maximum, 1 + rate · epoch)``, the epoch counted from 0."""
    return min(maximum, 1.0 + rate * epoch)
