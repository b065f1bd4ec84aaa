"""Numbers as answers: checked, and scaled by their mean and deviation in the training part."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.sequences import (
    ARGUMENTS,
    Item,
    Name,
    Names,
    about_columns,
    check_given,
    number_array,
    scale_of,
    scaled,
)

_LARGEST = 1e100
_NUMBER = (Real, Decimal)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers that a model answers.

    Args:
        mean, deviation: of each number of an answer in the training part.
        rows: whether an answer is a row of numbers, perhaps of one; else it is a number.
        steps: whether there is an answer for each step or token, not one for the sequence.
        ahead: of forecasts, how many steps they look ahead; an answer is the change to each of these, channel by
            channel. 0: answers are no forecasts.
        window: of forecasts, the steps that one reads at most.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    rows: bool = False
    steps: bool = False
    ahead: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        count = len(self.mean)
        if not count or len(self.deviation) != count or (count > 1 and not self.rows):
            raise InputError("numbers to answer must have a mean and a deviation each; several are a row")
        if not all(map(math.isfinite, self.mean)) or not all(0 < d < math.inf for d in self.deviation):
            raise InputError("the means of numbers to answer must be finite, and their deviations positive")
        if self.ahead < 0 or (self.ahead > 0) != (self.window > 1) or count % max(1, self.ahead):
            raise InputError("forecasts must look some steps ahead, with a number for each, and read a window")

    @staticmethod
    def of(answers: Sequence[np.ndarray], rows: bool, steps: bool) -> Numbers:
        """Those of these answers (N, numbers) of the training part; a constant has deviation 1."""
        mean, deviation = (tuple(found.tolist()) for found in scale_of(np.concatenate(answers)))
        return Numbers(mean, deviation, rows, steps)

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


def listed(y: Any, name: Name = ARGUMENTS.y) -> Any:
    """y as an array or a table of numbers, or as a list of what it holds; InputError if it is neither."""
    check_given(y)
    if isinstance(y, str | bytes | Mapping | Set) or not isinstance(y, Iterable) or getattr(y, "ndim", 1) == 0:
        raise InputError(f"{name.whole} must be a list of numbers; got {type(y).__name__}")
    if hasattr(y, "__array__"):
        if number_array(y) is not None:
            return y
        array = np.asarray(y)
        if array.dtype == object and all(isinstance(one, _NUMBER) for one in array.flat):
            return np.reshape(_floats(array), array.shape)
        if hasattr(y, "columns"):
            raise InputError(f"{name.whole} must hold numbers alone{about_columns(y)}")
    found = list(y)
    return found if number_array(found) is not None else _floats(found)


def _floats(given: Any) -> Any:
    """Lists, and arrays of objects, with floats for what NumPy has no type for: fractions, integers of any size."""
    given = given.tolist() if isinstance(given, np.ndarray) and given.dtype == object else given
    if isinstance(given, list | tuple):
        return [_floats(one) for one in given]
    if not isinstance(given, _NUMBER) or number_array(given) is not None:
        return given
    try:
        return float(given)
    except OverflowError:
        return -math.inf if given < 0 else math.inf


def check_numbers(y: Any, count: int, name: Name = ARGUMENTS.y, about: str = "") -> tuple[np.ndarray, bool]:
    """(sequences, numbers) in float64, and whether answers are rows; InputError unless there is one per sequence.

    y is as ``listed`` gives it; ``about`` ends the error about another count.
    """
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
    return _finite(array, name), array.ndim == 2


def per_step(y: Any, inputs: Sequence[Item]) -> bool:
    """Whether y holds answers for each step: lists that are as long as the sequences, or of unequal lengths.

    y is as ``listed`` gives it. An array or a table (sequences, numbers) never does.
    """
    if getattr(y, "ndim", 3) == 2 or not isinstance(y, list | np.ndarray):
        return False
    if not len(y) or not all(isinstance(one, list | tuple) or getattr(one, "ndim", 0) for one in y):
        return False
    sizes = [len(one) for one in y]
    return len(set(sizes)) > 1 or sizes == [len(one) for one in inputs]


def check_step_numbers(y: Any, inputs: Sequence[Item], names: Names = ARGUMENTS) -> tuple[list[np.ndarray], bool]:
    """For each sequence (steps, numbers), and whether answers are rows; InputError unless there is one per step.

    y is as ``listed`` gives it.
    """
    if len(y) != len(inputs):
        raise InputError(f"there must be a list of numbers per sequence; got {len(inputs)} sequences and {len(y)}")
    found, kinds = [], set()
    for k, (one, read) in enumerate(zip(y, inputs)):
        array = number_array(one)
        if array is None or array.ndim not in (1, 2) or 0 in array.shape[1:]:
            raise InputError(f"{names.y[k]} must hold a number, or a row of numbers, per step; got {reprlib.repr(one)}")
        if len(array) != len(read):
            raise InputError(
                f"there must be one number per step, or as many for each sequence; {names.X[k]} has {len(read)} steps "
                f"and {names.y[k]} {len(array)} numbers"
            )
        kinds.add(array.shape[1:])
        found.append(_finite(array, names.y.inside(k, "number")))
    if len(kinds) > 1:
        raise InputError(f"{names.y.whole} must hold as many numbers for each step")
    return found, kinds != {()}


def _finite(array: np.ndarray, name: Name) -> np.ndarray:
    """(N, numbers) in float64; InputError about numbers that are too large or not finite."""
    whole = array.astype(np.float64).reshape(len(array), -1)
    fits = (np.abs(whole) <= _LARGEST).all(axis=1)  # NaN does not
    if not fits.all():
        k = int(fits.argmin())
        shown = " ".join(f"{one:g}" for one in whole[k])
        raise InputError(
            f"numbers to predict must be finite, of at most {_LARGEST:g} in size; got {shown} as {name[k]}"
        )
    return whole
