"""Dynamic evaluation (Krause et al., 2018): while a text is read, the weights follow the gradient of what was read.

Every symbol is still predicted before it is seen: a segment is predicted with weights that know only the segments
before it, and its own gradient changes them afterwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from hmrnn.config.checks import Count, NotNegative, Proportion, checked, types_of
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.evaluate import Evaluation, Piece, evaluation, read_text
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.reading.score import Sums

CLIP_NORM = 1.0
"""The largest norm of a segment's gradient: one odd passage must not spoil the weights for all others."""
DAMPING = 0.1
"""Added to the root mean square that a gradient is divided by, as a share of a clipped gradient's mean entry."""


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """Settings of dynamic evaluation."""

    learning_rate: NotNegative = 0.0003
    """The step of a weight whose gradient is as large as its root mean square so far."""
    decay: Proportion = 0.003
    """The share of the way back to the trained weights, taken after each segment."""
    segment_length: Count = 100
    """Symbols of a segment: the weights change after each one, and the gradient is truncated there."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            checked(name, value, types_of(Dynamic)[name])


@dataclasses.dataclass(frozen=True)
class DynamicEvaluation(Evaluation):
    """The result of a model that learns from a text while it reads."""

    skipped: int
    """Segments that the weights did not follow, because the gradient was not finite."""


def evaluate_dynamic(
    model: LanguageModel,
    symbols: np.ndarray,
    dynamic: Dynamic | None = None,
    *,
    progress: Progress = None,
) -> DynamicEvaluation:
    """Evaluate one stream while the weights follow the text; they are restored afterwards."""
    total = Sums(model)

    def note(piece: Piece, nats: Tensor) -> None:
        total.add(piece.read, nats, torch.ones_like(piece.targets, dtype=torch.bool))

    skipped = read_dynamically(model, symbols, note, dynamic or Dynamic(), progress=progress)
    return DynamicEvaluation(**vars(evaluation(total)), skipped=skipped)


def read_dynamically(
    model: LanguageModel,
    symbols: np.ndarray,
    note: Callable[[Piece, Tensor], None],
    dynamic: Dynamic,
    *,
    progress: Progress = None,
) -> int:
    """Read a text in segments; the number of segments that the weights did not follow.

    ``note`` is called with each segment and the surprise (T, 1) of its symbols in nats, before the weights follow it: a
    step of gradient descent, unless the gradient is not finite, and decay to the trained weights.

    A gradient is divided by the root mean square of the gradients so far, weight by weight. Krause et al. take the mean
    over the training text instead, which need not be at hand.
    """
    with _borrowed(model) as (parameters, trained):
        sums = [torch.zeros_like(p) for p in parameters]
        damping = DAMPING * CLIP_NORM / math.sqrt(sum(p.numel() for p in parameters))
        followed = torch.zeros((), dtype=torch.int64, device=parameters[0].device)
        seen = 0
        for piece in read_text(model, symbols, chunk=dynamic.segment_length, gradient=True, progress=progress):
            nats = -piece.read.prediction.log_prob(piece.targets)
            with torch.no_grad():
                note(piece, nats.detach())
            gradients = torch.autograd.grad(nats.mean(), parameters, materialize_grads=True)
            with torch.no_grad():  # which never waits for the device
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
                good, clipped = norm.isfinite(), (CLIP_NORM / norm).clamp(max=1.0)
                seen, followed = seen + 1, followed + good
                for p, start, squares, gradient in zip(parameters, trained, sums, gradients):
                    gradient = torch.where(good, clipped * gradient, torch.zeros_like(p))
                    squares.addcmul_(gradient, gradient)
                    size = (squares / followed.clamp(min=1)).sqrt_().add_(damping)
                    p.addcdiv_(gradient, size, value=-dynamic.learning_rate)
                    p.lerp_(start, dynamic.decay)
        return seen - int(followed)


@contextmanager
def _borrowed(model: LanguageModel) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The parameters, to be changed in place, and copies of them, which are restored afterwards."""
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise InputError(
            "all parameters of this network are frozen, so none can follow the text; free some by "
            "requires_grad_(True), or evaluate without dynamic evaluation"
        )
    trained = [p.detach().clone() for p in parameters]
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield parameters, trained
    finally:
        with torch.no_grad():
            for p, start in zip(parameters, trained):
                p.copy_(start)
