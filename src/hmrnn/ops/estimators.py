"""The boundary detector: equations 8 and 9, the estimators of its gradient, and the schedules of its settings."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Boundary = Literal["step", "sample", "soft", "gumbel", "reinforce"]
OnCopy = Literal["hold", "evaluate"]
BOUNDARIES: tuple[str, ...] = get_args(Boundary)
ON_COPY: tuple[str, ...] = get_args(OnCopy)
DRAWN = ("sample", "gumbel", "reinforce")
"""Estimators whose boundaries are Bernoulli draws while training, and the likelier state otherwise."""
MARGIN = 0.01
"""The relaxation of "gumbel" clamps z̃ to [MARGIN, 1 - MARGIN], which bounds its gradient by 25 / temperature."""
SMALLEST = 1e-6
"""``score_function`` clamps probabilities to [SMALLEST, 1 - SMALLEST] before it takes their logarithm."""


def straight_through(probability: Tensor, value: Tensor) -> Tensor:
    """``value``, whose gradient goes to ``probability`` unchanged (Bengio et al., 2013).

    The term that carries the gradient is exactly zero. It is not a ``torch.autograd.Function``, so that torch.func,
    torch.compile and torch.export see through it.
    """
    return value.detach() + (probability - probability.detach())


def hard_sigmoid(s: Tensor, slope: Tensor | float) -> Tensor:
    """``max(0, min(1, (a·s + 1) / 2))``: its gradient is a/2 inside the linear range and 0 outside."""
    return ((slope * s + 1) / 2).clamp(0, 1)


def decide(
    probability: Tensor, boundary: Boundary, noise: Tensor | None = None, temperature: Tensor | float = 1.0
) -> Tensor:
    """f_bound of equation 8: the boundary state z of a detector with z̃ = ``probability``.

    ``noise``, uniform in [0, 1), makes z a draw with "sample", "gumbel" and "reinforce"; without noise z is the
    likelier state, as with "step". The gradient of z goes to z̃ unchanged; with "gumbel" and noise it is that of
    :func:`relaxed`, and with "reinforce" there is none (see :func:`score_function`).
    """
    if boundary == "soft":
        return probability
    threshold = noise if boundary in DRAWN and noise is not None else 0.5
    value = (probability > threshold).to(probability.dtype)
    if boundary == "reinforce":
        return value
    if boundary == "gumbel" and noise is not None:
        return straight_through(relaxed(probability, noise, temperature), value)
    return straight_through(probability, value)


def relaxed(probability: Tensor, noise: Tensor, temperature: Tensor | float) -> Tensor:
    """The binary concrete variable (Maddison et al., 2017; Jang et al., 2017) of a draw ``probability > noise``.

    It is σ((logit z̃ - logit noise) / temperature), where -logit noise has a logistic distribution. It exceeds 1/2
    where the draw gives 1.
    """
    p = probability.clamp(MARGIN, 1 - MARGIN)
    return torch.sigmoid((torch.logit(p) - torch.logit(noise)) / temperature)


def relaxed_gradient(probability: Tensor, noise: Tensor, temperature: Tensor | float) -> Tensor:
    """The derivative of :func:`relaxed` with respect to ``probability``, for engines that are not differentiated."""
    y = relaxed(probability, noise, temperature)
    inside = (probability >= MARGIN) & (probability <= 1 - MARGIN)
    p = probability.clamp(MARGIN, 1 - MARGIN)
    return inside * y * (1 - y) / (temperature * p * (1 - p))


def discounted_sums(values: Tensor, discount: float = 1.0) -> Tensor:
    """(T, ...): for each step the sum of ``values`` from there to the end, each later step weighted by ``discount``."""
    total, sums = torch.zeros_like(values[0]), []
    for value in reversed(values.unbind()):
        total = value + discount * total
        sums.append(total)
    return torch.stack(sums[::-1])


def score_function(
    probabilities: Tensor,
    boundaries: Tensor,
    losses: Tensor,
    baseline: Tensor | float = 0.0,
    *,
    discount: float = 1.0,
    entropy: float = 0.0,
) -> Tensor:
    """The terms of REINFORCE (Williams, 1992) to add to the losses of a network with ``boundary="reinforce"``.

    ``score_function(...) + losses``, summed or averaged, has the gradient of the expected losses in expectation. Its
    value means nothing; only its gradient does.

    Args:
        probabilities: (T, B, detectors) z̃ with its gradient: ``out.probabilities``, but 0 where ``on_copy="hold"`` let
            no boundary be drawn.
        boundaries: (T, B, detectors) what was drawn: ``out.boundaries``.
        losses: (T, B) what each step costs, 0 in the padding. The boundaries of a step answer for its own loss and all
            later ones.
        baseline: (T, B) a prediction of those sums of losses, which must not depend on the boundaries of its own step
            or later ones. It changes the variance of the gradient, not its expectation.
        discount: weight of a loss for the boundaries one step earlier. Below 1 the variance is lower and the gradient
            biased.
        entropy: weight of a bonus for the entropy of each draw, in nats.

    Returns:
        (T, B), to be reduced as the losses are, without the padding.
    """
    advantage = (discounted_sums(losses, discount) - baseline).detach()
    p = probabilities.clamp(SMALLEST, 1 - SMALLEST)
    log_p, log_q = p.log(), (1 - p).log()
    terms = advantage * torch.where(boundaries.detach() > 0.5, log_p, log_q).sum(-1)
    return terms + entropy * (p * log_p + (1 - p) * log_q).sum(-1) if entropy else terms


def annealed_slope(epoch: float, rate: float, maximum: float) -> float:
    """The paper's schedule: ``a = min(maximum, 1 + rate · epoch)``, the epoch counted from 0."""
    return min(maximum, 1.0 + rate * epoch)


def linear(epoch: int, epochs: int, start: float, end: float) -> float:
    """A schedule, such as the temperature of "gumbel": from ``start`` in the first epoch to ``end`` in the last."""
    return start + (end - start) * min(1.0, epoch / max(1, epochs - 1))
