"""How well a model predicts handwriting: log-likelihood per sequence, boundary rates, the updates saved."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hmrnn.kinds.strokes.batches import StrokeBatches
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.reading.score import Score, read_all


@dataclasses.dataclass(frozen=True)
class StrokeEvaluation(Score):
    """The result of a model on sequences of points."""

    sequences: int
    points: int
    """Points predicted: all but the first of each sequence."""
    log_likelihood: float
    """Nats per sequence, in normalised coordinates; higher is better. The paper's measure for handwriting."""

    @property
    def per_point(self) -> float:
        """Nats per predicted point."""
        return self.log_likelihood * self.sequences / self.points

    def __str__(self) -> str:
        return f"log-likelihood  {self.log_likelihood:.1f} nats per line  ({self.per_point:.4f} per point)"

    @property
    def finite(self) -> bool:
        return math.isfinite(self.log_likelihood)


def evaluate_strokes(
    model: HandwritingModel,
    strokes: Strokes,
    scale: Scale,
    *,
    batch_size: int = 32,
    share: tuple[int, int] = (0, 1),
    **how: Any,
) -> StrokeEvaluation:
    """Read every sequence from its start and predict each point from those before it.

    A model that predicts halts is measured with them. Conditions are those of :func:`hmrnn.nn.predictor.conditioned`;
    without them, those of the strokes. ``share`` = (rank, world) lets each process of a group take every world-th
    batch; the sums are then added up. ``how`` may hold ``precision`` and ``progress``.
    """
    conditions = None
    if model.config.conditioned and model.condition.value is not None:
        conditions = model.condition.value.expand(len(strokes), *model.condition.value.shape[1:]).cpu().numpy()
    batches = StrokeBatches(strokes, scale, batch_size, model.config, conditions=conditions)
    points, (nats,), work = read_all(model, batches, share, **how).result(share[1])
    return StrokeEvaluation(*work, len(strokes), points, -nats / len(strokes))
