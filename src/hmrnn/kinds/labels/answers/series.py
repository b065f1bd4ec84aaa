"""Forecasts: for each step of the later halves of stretches of series, the change to the steps ahead.

A network reads a stretch of at most ``window`` steps from its zero state, in training as in use, without the mean of
the stretch's first half. It answers in the later half, so that no answer comes from less context than it will have in
use, or depends on what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from hmrnn.kinds.labels.answers.numbers import Scaled
from hmrnn.kinds.labels.sequences import Item

FIXED = 1e-6
"""The deviation of changes that are always the same, as a share of the largest value of their channel."""


class Forecasts(Scaled, frozen=True, tag="series", kw_only=True):
    """An answer is the change to each of the steps ahead, channel by channel."""

    ahead: Annotated[int, msgspec.Meta(ge=1)]
    """How many steps a forecast looks ahead."""
    window: Annotated[int, msgspec.Meta(ge=2)]
    """The steps that a forecast reads at most."""
    field: ClassVar[str] = "series"
    formats: ClassVar[str] = (
        ".csv or .tsv with a row per step and a column per channel, of several series with a column series, .jsonl "
        "with a field series per line, or lines of numbers"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.mean) % self.ahead:
            raise ValueError("forecasts must hold a number for each step ahead and each channel")

    @classmethod
    def of(cls, targets: Sequence[Any], train: Sequence[Any], **form: Any) -> Forecasts:
        """Those of changes in the training part; ``targets`` are its whole series."""
        found = super().of(targets, train, **form)
        # with a deviation of 1, what is always the same would be forecast with noise of that size
        size = FIXED * np.abs(np.concatenate(targets)).max(axis=0)
        fixed = np.ptp(np.concatenate(train), axis=0) == 0
        scale = np.where(fixed, np.tile(np.where(size > 0, size, FIXED), found.ahead), found.deviation)
        return msgspec.structs.replace(found, deviation=tuple(scale.tolist()))

    def describe(self) -> str:
        return f"the next {self.ahead} step(s)"

    def before(self, series: np.ndarray) -> np.ndarray:
        """A series less the mean of its first half, so that a trend stays within what training has shown."""
        found: np.ndarray = series - series[: (len(series) + 1) // 2].mean(axis=0)
        return found

    def given(self, values: np.ndarray, item: Item) -> Any:
        """(steps, channels): what follows a series."""
        return item[-1] + self.shaped(self.decode(values)[-1])

    def shaped(self, numbers: np.ndarray) -> np.ndarray:
        """(steps, channels) of the numbers of an answer."""
        return numbers.reshape(self.ahead, -1)


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
