"""Forecasts as answers: stretches of series, and for each step of their later halves the change to the steps ahead.

A network reads a stretch of at most ``window`` steps from its zero state, in training as in use, without the mean of
the stretch's first half. It answers in the later half, so that no answer comes from less context than it will have in
use, or depends on what follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.corpus import Examples, LabelCorpus
from hmrnn.kinds.labels.labelling import Labelling, from_level
from hmrnn.kinds.labels.numbers import Numbers
from hmrnn.kinds.labels.sequences import Item, scale_of

OVERLAP = 2
"""In training most steps are answered as often, each time after another context."""
FIXED = 1e-6
"""The deviation of changes that are always the same, as a share of the largest value of their channel."""


def forecast_corpus(
    series: Sequence[np.ndarray],
    ahead: int,
    window: int,
    *,
    name: str = "data",
    valid_fraction: float = 0.1,
    channels: tuple[str, ...] = (),
) -> LabelCorpus:
    """The stretches of series (time, channels) to train on, and those whose answers are in the last part of each.

    No step of a validation answer is part of a training answer. With ``valid_fraction`` 0 the training part also
    validates.
    """
    ends = [_validation(len(one), ahead, valid_fraction) for one in series]
    for k, (one, end) in enumerate(zip(series, ends)):
        if end < ahead + 2:
            held = f", of which {len(one) - end} are held out" if valid_fraction else ""
            raise InputError(
                f"series {k + 1} of {len(series)} has {len(one)} steps{held}, and forecasts of {ahead} steps can only "
                f"be learned from {ahead + 2} or more; ask for fewer steps, or leave it out"
            )
    known = [one[:end] for one, end in zip(series, ends)]
    window = min(window, max(map(len, known)))  # more would be read later than training has shown
    parts = [(one, places) for one in known for places in stretches(len(one), ahead, window)]
    mean, deviation = scale_of(np.concatenate([from_level(_read(one, places, window)) for one, places in parts]))
    changes = [following(one, ahead, places) for one, places in parts]
    numbers = Numbers.of(changes, True, True)
    # with a deviation of 1, what is always the same would be forecast with noise of that size
    size = FIXED * np.abs(np.concatenate(known)).max(axis=0)
    fixed = np.ptp(np.concatenate(changes), axis=0) == 0
    scale = np.where(fixed, np.tile(np.where(size > 0, size, FIXED), ahead), numbers.deviation)
    numbers = dataclasses.replace(numbers, deviation=tuple(scale.tolist()), ahead=ahead, window=window)
    reads = Labelling(
        "series", (), mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()), channels=channels,
        numbers=numbers,
    )  # fmt: skip
    learned = forecast_examples(reads, known, overlap=OVERLAP)
    valid = forecast_examples(reads, series, [end - 1 for end in ends]) if valid_fraction else learned
    return LabelCorpus(name, reads, learned, valid)


def forecast_examples(
    reads: Labelling, series: Sequence[np.ndarray], first: Sequence[int] | None = None, *, overlap: int = 1
) -> Examples:
    """The stretches of series with the changes that follow; answers from step ``first`` of each series on."""
    numbers = reads.numbers
    assert numbers is not None
    items: list[Item] = []
    targets, at = [], []
    for one, least in zip(series, first or [0] * len(series)):
        for places in stretches(len(one), numbers.ahead, numbers.window, least, overlap):
            items.append(_read(one, places, numbers.window))
            targets.append(numbers.encode(following(one, numbers.ahead, places)))
            at.append(places - (places[-1] + 1 - len(items[-1])))
    return Examples(items, [reads.encode(item) for item in items], targets, at, np.ones(len(items)))


def stretches(length: int, ahead: int, window: int, first: int = 0, overlap: int = 1) -> list[np.ndarray]:
    """The steps that each stretch of a series answers, in the later half of a window; none is before ``first``.

    The last answer has ``ahead`` steps after it. A series shorter than a window is answered in its own later half.
    Most steps are answered by ``overlap`` stretches.
    """
    last, size = length - ahead - 1, window - window // 2
    least = max(first, min(window // 2, last // 2))
    ends = range(last, least - 1, -max(1, size // overlap))
    return [np.arange(max(least, end + 1 - size), end + 1) for end in ends]


def following(series: np.ndarray, ahead: int, places: np.ndarray) -> np.ndarray:
    """(places, ahead · channels): the differences of the next steps from the step at each place."""
    steps = places[:, None] + np.arange(1, ahead + 1)
    changes: np.ndarray = series[steps] - series[places][:, None]  # (places, ahead, channels)
    return changes.reshape(len(places), -1)


def _read(series: np.ndarray, places: np.ndarray, window: int) -> np.ndarray:
    """The steps that a network reads to answer at ``places``."""
    end = int(places[-1]) + 1
    return series[max(0, end - window) : end]


def _validation(length: int, ahead: int, share: float) -> int:
    """The first step that no training answer holds."""
    return length if share == 0 else min(length - max(1, round(share * length)), length - ahead)
