"""REINFORCE in a run: the terms that an update adds to its loss, and their learned baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from hmrnn.config import DetectorConfig
from hmrnn.ops.estimators import discounted_sums, score_function
from hmrnn.training.task import Loss


class Baseline:
    """A prediction of the mean loss of this step and all later ones, linear in h of all layers one step earlier.

    It learns by normalised least mean squares and not by the optimizer, so that its gradient takes no part in the
    clipping of the network's. Its weights belong to the run, not to the model.
    """

    def __init__(self, units: int, device: torch.device) -> None:
        self.weights = torch.zeros(units + 1, device=device)  # the last one is the bias

    def terms(self, loss: Loss, d: DetectorConfig) -> tuple[Tensor, Tensor]:
        """What to add to ``loss.value``, and what this loss would change in the weights; see :meth:`learn`."""
        losses, p, h = loss.surprise, loss.chances, loss.hidden
        assert losses is not None
        assert p is not None
        assert h is not None
        active = torch.ones_like(losses) if loss.active is None else loss.active.to(losses)
        steps = discounted_sums(active, d.discount).clamp(min=1)  # (T, B) that the boundaries of a step answer for
        features = torch.cat([h.to(losses), torch.ones_like(h[..., :1], dtype=losses.dtype)], dim=-1)
        features = features * active[..., None]  # (T, B, units + 1)
        predicted = (features * self.weights).sum(-1)
        terms = score_function(
            p, loss.boundaries, losses, predicted * steps, discount=d.discount, entropy=d.entropy
        )  # (T, B)
        error = discounted_sums(losses, d.discount) / steps - predicted
        change = (error[..., None] * features).sum((0, 1)) / features.square().sum().clamp(min=1)
        return (terms * active).sum() / loss.divisor, change

    def learn(self, change: Tensor, good: Tensor) -> None:
        """Change the weights, unless the update is skipped (``good`` is False)."""
        self.weights += torch.where(good, change, 0.0)
