"""Rate control: the detectors' biases move to where they fire at their target rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.training.processes import mean
from hmrnn.training.task import Loss
from hmrnn.training.terms.rates import targets
from hmrnn.training.terms.term import Term

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer


class Control(Term):
    """Moves the detectors' biases by a share of what they lack; the share falls with the learning rate."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.needs = {"chances": "detectors.rate_control"}

    def start(self, run: Trainer) -> None:
        self.rnn, self.world = run.model.rnn, run.world
        detectors = len(self.config.detectors.rates)
        self.sums = torch.zeros(detectors + 1, dtype=torch.float64, device=run.device)  # lacking biases, weights

    @torch.no_grad()
    def loss(self, reading: Loss) -> None:
        lacking = lacking_bias(reading, targets(reading, self.config.detectors), self.rnn)
        self.sums += torch.cat([lacking, torch.ones_like(lacking[:1])]) * reading.weight()

    def before_step(self) -> None:
        leave_to_control(self.rnn)

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        sums = mean(self.sums, self.world)
        strength = self.config.detectors.rate_control * (rate / self.config.train.learning_rate)
        control_rates(self.rnn, sums[:-1] / sums[-1].clamp(min=1), strength, good)
        self.sums.zero_()


@torch.no_grad()
def lacking_bias(loss: Loss, targets: Sequence[float | Tensor], rnn: HMLSTM) -> Tensor:
    """(detectors,): what must be added to each detector's bias to reach its target rate on this batch.

    With "step" a detector fires where its pre-activation is positive. So the bias lacks the negative of the value that
    a share ``target`` of the pre-activations exceeds; beyond the linear range of the hard sigmoid the end of the range
    stands for the value. With "sample" and "soft" the mean probability moves to the target.
    """
    assert loss.chances is not None
    values = loss.chances.float()  # (T, B, detectors)
    active = torch.ones_like(values[..., 0], dtype=torch.bool) if loss.active is None else loss.active
    count = active.sum().clamp(min=1)
    lacking = []
    for l, target in enumerate(targets):
        if rnn.boundary == "step":
            highest = torch.where(active, values[..., l], -1.0).flatten().sort(descending=True).values
            place = highest.take(torch.minimum((target * count).long(), count - 1))
            lacking.append((1 - 2 * place) / rnn.a)
        else:
            lacking.append((target - (values[..., l] * active).sum() / count) * 2 / rnn.a)
    return torch.stack(lacking)


def leave_to_control(rnn: HMLSTM) -> None:
    """Zero the gradient of the detectors' biases: control alone moves them, or the two would settle off the target."""
    for b in rnn.detector_biases():
        assert b.grad is not None
        b.grad[-1].zero_()  # not "= 0", which copies from the host and cannot be captured


@torch.no_grad()
def control_rates(rnn: HMLSTM, lacking: Tensor, strength: float | Tensor, good: Tensor) -> None:
    """Move the detectors' biases by ``strength`` of what they lack; a skipped update (``good`` is False) does not.

    This brings back a detector outside the linear range of its hard sigmoid, where a prior has no gradient.
    """
    for b, lack in zip(rnn.detector_biases(), torch.where(good, strength * lacking, 0.0)):
        b[-1] += lack
