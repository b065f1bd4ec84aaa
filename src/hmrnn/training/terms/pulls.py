"""Pulls of the detectors to the steps at which segments should end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hmrnn.analysis.baselines import entropy_rise, uncertainty
from hmrnn.config import Config, PullTo
from hmrnn.training.task import Loss
from hmrnn.training.terms.term import Term


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
