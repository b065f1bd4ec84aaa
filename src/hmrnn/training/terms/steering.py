"""Steering of the detectors: target rates, control of the rates, pulls to where segments should end, and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.analysis.baselines import uncertainty
from hmrnn.config import Config, DetectorConfig, PullTo
from hmrnn.nn.hmlstm import HMLSTM, hmlstms
from hmrnn.nn.rates import distance, search_biases
from hmrnn.training.task import Loss, Term, Training

GELU_SLOPE = 1.13
"""The largest slope of gelu, rounded up."""


class Rates(Term):
    """The rate prior and, with ``start_at_rates``, the detectors' biases at the start."""

    def epoch(self, run: Training, done: int) -> None:
        d = self.config.detectors
        if done == 0 and d.start_at_rates:
            search_biases(run.model.rnn, lambda: first_rates(run), d.rates)

    def loss(self, reading: Loss) -> Tensor:
        d = self.config.detectors
        return d.rate_weight * distance(reading.rates(), targets(reading, d))


@torch.no_grad()
def first_rates(run: Training) -> Tensor:
    """(detectors,): the rates of the detectors on the first batch, over all processes."""
    with run.autocast():
        loss = run.task.loss(run.model, run.task.batch(0, 0), run.state)
    weight = loss.weight().double()
    return run.mean(loss.rates() * weight) / run.mean(weight).clamp(min=1)


def targets(loss: Loss, d: DetectorConfig) -> list[float | Tensor]:
    """The target rate of each detector: that of the settings, or for the lowest the rate of the head's segments."""
    if d.pull_to != "segments" or loss.segments is None:
        return list(d.rates)
    return [loss.segments.mean(), *d.rates[1:]]


class Control(Term):
    """Moves the detectors' biases by a share of what they lack; the share falls with the learning rate."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.needs = {"chances": "detectors.rate_control"}

    def start(self, run: Training) -> None:
        self.rnn, self.mean = run.model.rnn, run.mean
        detectors = len(self.config.detectors.rates)
        self.sums = torch.zeros(detectors + 1, dtype=torch.float64, device=run.device)  # lacking biases, weights

    @torch.no_grad()
    def loss(self, reading: Loss) -> None:
        lacking = lacking_bias(reading, targets(reading, self.config.detectors), self.rnn)
        self.sums += torch.cat([lacking, torch.ones_like(lacking[:1])]) * reading.weight()

    def before_step(self) -> None:
        """Zero the gradient of the biases: control alone moves them, or the two would settle off the target."""
        for b in self.rnn.detector_biases():
            b.grad[-1].zero_()  # not "= 0", which copies from the host and cannot be captured

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        sums = self.mean(self.sums)
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


@torch.no_grad()
def control_rates(rnn: HMLSTM, lacking: Tensor, strength: float | Tensor, good: Tensor) -> None:
    """Move the detectors' biases by ``strength`` of what they lack; a skipped update (``good`` is False) does not.

    This brings back a detector outside the linear range of its hard sigmoid, where a prior has no gradient.
    """
    for b, lack in zip(rnn.detector_biases(), torch.where(good, strength * lacking, 0.0)):
        b[-1] += lack


class Pull(Term):
    """Pulls detectors to where ``detectors.pull_to`` says."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        d = config.detectors
        aim = {"uncertainty": "entropy", "entropy": "entropy", "segments": "segments"}.get(d.pull_to, "surprise")
        self.needs = {aim: f"detectors.pull_to {d.pull_to}", "surprise": "detectors.pull_weight"}
        if d.pull_margin > 0:
            self.needs["chances"] = "detectors.pull_margin"

    def loss(self, reading: Loss) -> Tensor:
        d = self.config.detectors
        if d.pull_to == "segments":
            return d.pull_weight * segment_pull(reading, d.pull_delay, d.pull_margin)
        return d.pull_weight * surprise_pull(reading, d.rates, d.pull_delay, d.pull_to, d.pull_margin)


def segment_pull(loss: Loss, delay: int, margin: float = 0.0) -> Tensor:
    """A loss that pulls the lowest detector to the ends of segments that the segmental head expects.

    The head knows what follows; the detector has to do without, or with ``delay`` 1 with one symbol of it. ``margin``
    is the weight of a pull beyond the threshold, as in :func:`surprise_pull`.
    """
    assert loss.segments is not None
    wanted, z = loss.segments.detach(), loss.boundaries[..., 0]
    if delay:
        wanted, z = wanted[:-1], z[1:]
    return _errors(z, wanted, None if loss.chances is None else loss.chances[delay:, :, 0], margin).mean()


def surprise_pull(loss: Loss, targets: Sequence[float], delay: int, to: PullTo = "rise", margin: float = 0.0) -> Tensor:
    """A loss that pulls each detector to the steps where surprise rises most, as many as its target rate says.

    The present model is the teacher: a word or a stroke begins where the next symbol is hard to predict. With ``to``
    "uncertainty" these are the steps where the model is least certain of the next symbol, with "entropy" those where
    this uncertainty stands out from the step before. With ``delay`` 0 a boundary belongs before the symbol that
    surprises, so the detector must predict it; with 1 it belongs on that symbol. The gradient reaches the detectors
    through z at every step.

    The pull stops at the threshold, where pre-activations may gather and rounding decides (results/searches.md).
    ``margin`` is the weight of a pull that continues to probabilities of 0.1 and 0.9, which is still within the linear
    range of the hard sigmoid.
    """
    surprise, z, active = loss.surprise, loss.boundaries, loss.active
    assert surprise is not None
    if to == "rise":
        height = surprise.diff(dim=0, prepend=surprise[:1])
    else:
        height = (uncertainty if to == "uncertainty" else entropy_rise)(surprise, loss.entropy)
    if delay:
        height = torch.cat([torch.zeros_like(height[:1]), height[:-1]])
    if active is None:
        active = torch.ones_like(height, dtype=torch.bool)
    height = torch.where(active, height, -torch.inf)  # (T, B)
    highest = height.flatten().sort(descending=True).values
    count = active.sum().clamp(min=1)
    total = z.new_zeros(())
    for l, target in enumerate(targets):
        least = highest.take((target * count).long().clamp(max=height.numel() - 1))
        wanted = ((height > least) & (height > 0)).to(z.dtype)  # (T, B)
        errors = _errors(z[..., l], wanted, None if loss.chances is None else loss.chances[..., l], margin)
        total = total + (errors * active).sum() / count
    return total


def _errors(z: Tensor, wanted: Tensor, chances: Tensor | None, margin: float) -> Tensor:
    """(T, B): squared distances of z from what is wanted and, ``margin`` times, of its chances from 0.1 or 0.9."""
    errors = (z - wanted) ** 2
    if margin == 0:
        return errors
    assert chances is not None
    error = chances.detach() - (0.1 + 0.8 * wanted)
    return errors + margin * (error**2 + 2 * error * (z - z.detach()))  # z has the gradient of its chances


def entropy_rise(surprise: Any, expected: Any) -> Any:
    """A score for an end before each symbol: expected[t] - (expected[t-1] + surprise[t-1]) / 3.

    As in :func:`uncertainty`, but it rests on symbols before the end alone, and is low inside of a rare word, where one
    hard symbol follows another. For the first symbol, both terms of t-1 are expected[t]. The factor was found on the
    validation part of English prose (results/searches.md).
    """
    result = expected - 0.0
    result[1:] -= (expected[:-1] + surprise[:-1]) / 3
    result[:1] /= 3
    return result


class Bounds(Term):
    """Shrinks the detectors' rows of V and U where they exceed ``detectors.bounds``."""

    def start(self, run: Training) -> None:
        self.model = run.model

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        bound_feedback(self.model, *self.config.detectors.bounds, good)


@torch.no_grad()
def bound_feedback(model: nn.Module, feedback: float, recurrence: float, good: Tensor | bool = True) -> None:
    """Shrink the detectors' rows of V and U, which bounds the gradient that a boundary passes to the previous one.

    A boundary adds v·h to the next pre-activation of its own detector, where h belongs to the layer above. So the
    gradient is multiplied by (a/2)·v·h at every step in the linear range, which is at most (a/2)·‖v‖₁ as |h| < 1;
    ``feedback`` bounds this. A boundary also decides whether the cell is kept, which changes h of its own layer by
    about 1 at most: hence (a/2)·‖u‖₁, which ``recurrence`` bounds. The cell remembers the change for some steps, so a
    bound of 1 does not guarantee stability there. 0: no bound. A skipped update (``good`` is False) changes nothing.

    With a hidden layer the same holds for the columns of D1 that read h, each row weighed by D2 and by the largest
    slope of gelu.
    """
    for module in hmlstms(model):
        for w in module.layers():
            for bound, matrix, first in ((feedback, w.V, w.hidden_size), (recurrence, w.U, 0)):
                if bound == 0 or matrix is None or not w.has_detector:
                    continue
                if w.D1 is not None and w.D2 is not None:
                    read = w.D1[:, first : first + matrix.shape[1]]
                    size = GELU_SLOPE * (w.D2.abs() @ read.abs()).sum()
                else:
                    read, size = matrix[-1], matrix[-1].abs().sum()
                factor = (2 * bound / (module.a * size)).clamp(max=1)
                read.mul_(1 - good * (1 - factor))
