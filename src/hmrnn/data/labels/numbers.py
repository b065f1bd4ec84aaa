"""Numbers as answers: checked, and scaled by their mean and deviation in the training part."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from hmrnn.data.labels.sequences import ARGUMENTS, Name, number_array, scale_of, scaled
from hmrnn.errors import InputError

_LARGEST = 1e100


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers that a model answers.

    Args:
        mean, deviation: of each number of an answer in the training part.
        rows: whether an answer is a row of numbers, perhaps of one; else it is a number.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    rows: bool = False

    def __post_init__(self) -> None:
        count = len(self.mean)
        if not count or len(self.deviation) != count or (count > 1 and not self.rows):
            raise InputError("numbers to answer must have a mean and a deviation each; several are a row")
        if not all(map(math.isfinite, self.mean)) or not all(0 < d < math.inf for d in self.deviation):
            raise InputError("the means of numbers to answer must be finite, and their deviations positive")

    @staticmethod
    def of(answers: Sequence[np.ndarray], rows: bool) -> Numbers:
        """Those of these answers (N, numbers) of the training part; a constant has deviation 1."""
        mean, deviation = (tuple(found.tolist()) for found in scale_of(np.concatenate(answers)))
        return Numbers(mean, deviation, rows)

    def encode(self, answer: np.ndarray) -> np.ndarray:
        """Answers (N, numbers) as a network learns them, in float32."""
        return scaled(answer, self.mean, self.deviation, "a number to predict")

    def decode(self, found: np.ndarray) -> np.ndarray:
        """The inverse of ``encode``, in float64."""
        decoded: np.ndarray = found.astype(np.float64) * self.deviation + self.mean
        return decoded

    def shaped(self, numbers: np.ndarray) -> np.ndarray:
        """(..., numbers), without the last axis if an answer is a number."""
        return numbers if self.rows else numbers[..., 0]


def check_numbers(y: Any, count: int, name: Name = ARGUMENTS.y, about: str = "") -> tuple[np.ndarray, bool]:
    """(sequences, numbers) in float64, and whether answers are rows; InputError unless there is one per sequence.

    ``about`` ends the error about another count.
    """
    if isinstance(y, str | bytes | Mapping | Set) or not isinstance(y, Iterable):
        raise InputError(f"{name.whole} must be a list of numbers; got {type(y).__name__}")
    y = y if hasattr(y, "__array__") else list(y)
    array = number_array(y)
    if array is None or array.ndim not in (1, 2) or 0 in array.shape[1:]:
        each = [number_array(one) for one in y] if not hasattr(y, "columns") else []
        wrong = next((k for k, one in enumerate(each) if one is None or one.ndim > 1), None)
        if wrong is not None:
            got = reprlib.repr(y[wrong]) if isinstance(y, list) else repr(np.asarray(y).tolist()[wrong])
            raise InputError(f"{name[wrong]} must be a number, or a row of numbers; got {got}")
        sizes = sorted({one.size for one in each if one is not None})
        got = f"; got rows of {sizes[0]} and {sizes[-1]}" if len(sizes) > 1 else ""
        raise InputError(f"{name.whole} must hold a number per sequence, or as many for each{got}")
    if len(array) != count:
        raise InputError(f"there must be one number per sequence; got {count} sequences and {len(array)}{about}")
    whole = array.astype(np.float64).reshape(count, -1)
    fits = (np.abs(whole) <= _LARGEST).all(axis=1)  # NaN does not
    if not fits.all():
        k = int(fits.argmin())
        shown = " ".join(f"{one:g}" for one in whole[k])
        raise InputError(
            f"numbers to predict must be finite, of at most {_LARGEST:g} in size; got {shown} as {name[k]}"
        )
    return whole, array.ndim == 2
