"""REINFORCE: the score function of the detectors' draws, with a learned baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.ops.estimators import discounted_sums, score_function
from hmrnn.training.task import Loss, Term, Training


class Reinforce(Term):
    """The terms of REINFORCE. Their baseline predicts the mean loss of this step and all later ones.

    It is linear in h of all layers one step earlier, and learns by normalised least mean squares and not by the
    optimizer, so that its gradient takes no part in the clipping of the network's.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.needs = dict.fromkeys(("surprise", "chances", "hidden"), "detectors.estimator reinforce")

    def start(self, run: Training) -> None:
        units = sum(run.model.rnn.hidden_sizes)
        self.weights = torch.zeros(units + 1, device=run.device)  # the last one is the bias
        self.change, self.mean = torch.zeros_like(self.weights), run.mean

    def loss(self, reading: Loss) -> Tensor:
        d = self.config.detectors
        losses, p, h = reading.surprise, reading.chances, reading.hidden
        assert losses is not None
        assert p is not None
        assert h is not None
        active = torch.ones_like(losses) if reading.active is None else reading.active.to(losses)
        steps = discounted_sums(active, d.discount).clamp(min=1)  # (T, B) that the boundaries of a step answer for
        features = torch.cat([h.to(losses), torch.ones_like(h[..., :1], dtype=losses.dtype)], dim=-1)
        features = features * active[..., None]  # (T, B, units + 1)
        predicted = (features * self.weights).sum(-1)
        terms = score_function(
            p, reading.boundaries, losses, predicted * steps, discount=d.discount, entropy=d.entropy
        )  # (T, B)
        error = discounted_sums(losses, d.discount) / steps - predicted
        change = (error[..., None] * features).sum((0, 1)) / features.square().sum().clamp(min=1)
        self.change += change / self.config.train.accumulate
        return (terms * active).sum() / reading.divisor

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        self.weights += torch.where(good, self.mean(self.change), 0.0)
        self.change.zero_()

    def tensors(self) -> dict[str, Tensor]:
        return {"weights": self.weights}
