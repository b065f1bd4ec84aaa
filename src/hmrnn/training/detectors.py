"""Everything that training does about boundary detectors: start, pulls, control, bounds, and warnings of collapse."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.analysis.baselines import entropy_rise, uncertainty
from hmrnn.config import DetectorConfig, PullTo
from hmrnn.nn.hmlstm import HMLSTM, hmlstms
from hmrnn.nn.rates import distance
from hmrnn.training.task import Loss

SILENT, ALWAYS = 0.002, 0.98
"""A detector whose rate over an epoch is below the first is silent; above the second it fires always."""
CONTROLLED = 250
"""Updates in which rate control may still bring back a silent detector, so that it is not worth a warning: on 60,000
characters of text the second one of the preset `text` fires at 0 to 0.006 up to update 200, and at 0.023 by 256."""
GELU_SLOPE = 1.13
"""The largest slope of gelu, rounded up."""


def of_both_directions(d: DetectorConfig, rnn: Any) -> DetectorConfig:
    """``d`` with a target rate for every detector of ``rnn``: a bidirectional network has twice as many."""
    return dataclasses.replace(d, rates=d.rates * (count(rnn) // max(1, len(d.rates))))


def count(rnn: Any) -> int:
    """The number of detectors, in both directions."""
    return len(rnn.detector_biases()) if rnn.num_boundaries else 0


def expect(model: nn.Module, rates: tuple[float, ...]) -> None:
    """Tell the networks the target rates, by which "auto" chooses an engine on a GPU."""
    for module in hmlstms(model):
        module.rates = rates


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


def pull(loss: Loss, rates: Tensor, d: DetectorConfig) -> Tensor:
    """What the detectors' targets add to the loss."""
    total = d.rate_weight * distance(rates, targets(loss, d))
    if d.pull_weight > 0 and d.pull_to == "segments":
        total = total + d.pull_weight * segment_pull(loss, d.pull_delay, d.pull_margin)
    elif d.pull_weight > 0:
        total = total + d.pull_weight * surprise_pull(loss, d.rates, d.pull_delay, d.pull_to, d.pull_margin)
    return total


def targets(loss: Loss, d: DetectorConfig) -> list[float | Tensor]:
    """The target rate of each detector: that of the settings, or for the lowest the rate of the head's segments."""
    if d.pull_to != "segments" or loss.segments is None:
        return list(d.rates)
    return [loss.segments.mean(), *d.rates[1:]]


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


def _errors(z: Tensor, wanted: Tensor, chances: Tensor | None, margin: float) -> Tensor:
    """(T, B): squared distances of z from what is wanted and, ``margin`` times, of its chances from 0.1 or 0.9."""
    errors = (z - wanted) ** 2
    if margin == 0:
        return errors
    assert chances is not None
    error = chances.detach() - (0.1 + 0.8 * wanted)
    return errors + margin * (error**2 + 2 * error * (z - z.detach()))  # z has the gradient of its chances


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
        height = (uncertainty if to == "uncertainty" else entropy_rise)(surprise, loss.expected)
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


def condition(rate: float) -> str:
    """The condition of a detector with this rate over an epoch: "silent", "always" or "alive"."""
    return "silent" if rate < SILENT else "always" if rate > ALWAYS else "alive"


def next_condition(rate: float, before: str) -> str:
    """``condition``, but a detector is "alive" again only beyond twice the limit, so that it does not flicker."""
    back = {"silent": rate > 2 * SILENT, "always": rate < 1 - 2 * (1 - ALWAYS)}
    now = condition(rate)
    return before if now == "alive" and not back.get(before, True) else now


def advice(layer: int, rate: float, detectors: int, held: bool = False, biased: bool = False) -> str:
    """What a detector's condition means, and what to do about it; ``layer`` is counted from 1.

    ``detectors`` is how many can be given rates: 0 if a text gives the boundaries. ``held``: they have rates.
    ``biased``: they have a bias, which excludes ``start_at_rates``.
    """
    now = condition(rate)
    if now == "alive":
        return f"the detector of layer {layer} finds segments again, at rate {rate:.4f}"
    what = {
        "silent": f"has fallen silent: at rate {rate:.4f} its segments hardly ever end, and layer {layer + 1} is idle",
        "always": f"fires always: at rate {rate:.4f} every step is a segment, and layer {layer + 1} reads all of them",
    }[now]
    if held:
        means = "detectors.rate_control 0.5, which holds its rate more firmly"
    elif not detectors:
        means = f"model.num_layers {layer}"
    else:
        rates = " ".join(f"{0.9 * (2 / 3) ** l:.2g}" for l in range(detectors))
        means = f"held rates: detectors.rates {rates} detectors.rate_weight 0.2 detectors.start_at_rates"
        means += ", without detectors.bias" * biased
    return f"the detector of layer {layer} {what}; if that is the same after the next epoch, start again with {means}"
