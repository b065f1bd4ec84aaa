"""Target boundary rates: detectors start at them, and a prior keeps them near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmrnn.config import DetectorConfig
from hmrnn.nn.rates import distance, search_biases
from hmrnn.training.processes import mean
from hmrnn.training.task import Loss
from hmrnn.training.terms.term import Term

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer


class Rates(Term):
    """The rate prior and, with ``start_at_rates``, the detectors' biases at the start."""

    def epoch(self, run: Trainer, done: int) -> None:
        d = self.config.detectors
        if done == 0 and d.start_at_rates:
            search_biases(run.model.rnn, lambda: first_rates(run), d.rates)

    def loss(self, reading: Loss) -> Tensor:
        d = self.config.detectors
        return d.rate_weight * distance(reading.rates(), targets(reading, d))


@torch.no_grad()
def first_rates(run: Trainer) -> Tensor:
    """(detectors,): the rates of the detectors on the first batch, over all processes."""
    with run.autocast():
        loss = run.task.loss(run.model, run.task.batch(0, 0), run.state)
    weight = loss.weight().double()
    return mean(loss.rates() * weight, run.world) / mean(weight, run.world).clamp(min=1)


def targets(loss: Loss, d: DetectorConfig) -> list[float | Tensor]:
    """The target rate of each detector: that of the settings, or for the lowest the rate of the head's segments."""
    if d.pull_to != "segments" or loss.segments is None:
        return list(d.rates)
    return [loss.segments.mean(), *d.rates[1:]]
