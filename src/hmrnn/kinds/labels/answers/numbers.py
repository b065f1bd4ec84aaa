"""Numbers: one, or a row of them, for each sequence, step or token."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.base import Answer, Checked, Encoded, Finite, Positive, listed
from hmrnn.kinds.labels.sequences import Item, numbers_of, scale_of, scaled

S = TypeVar("S", bound="Scaled")


class Scaled(Answer, frozen=True):
    """Answers in numbers, scaled by the mean and the deviation of each in the training part.

    ``shaped`` gives the numbers of an answer, or of several, the shape that users give them.
    """

    mean: Annotated[tuple[Finite, ...], msgspec.Meta(min_length=1)]
    deviation: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.deviation):
            raise ValueError("there must be as many means as deviations")

    @classmethod
    def of(cls: type[S], targets: Sequence[Any], train: Sequence[Any], **form: Any) -> S:
        mean, deviation = (tuple(found.tolist()) for found in scale_of(np.concatenate(train)))
        return cls(mean, deviation, **form)

    @property
    def size(self) -> int:
        return len(self.mean)

    def encode(self, target: Any) -> np.ndarray:
        return scaled(target, self.mean, self.deviation, "a number to predict")

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The inverse of ``encode``, in float64."""
        decoded: np.ndarray = values.astype(np.float64) * self.deviation + self.mean
        return decoded

    def wanted(self, encoded: np.ndarray) -> np.ndarray:
        return self.decode(encoded)


class Numbers(Scaled, frozen=True, tag="numbers"):
    rows: bool = False
    """Whether an answer is a row of numbers, perhaps of one; else it is a number."""
    per_step: bool = msgspec.field(default=False, name="steps")
    """Whether there is an answer for each step or token, not one for the sequence."""
    field: ClassVar[str] = "number"
    formats: ClassVar[str] = (
        ".tsv or .csv with a text and a number per line, or with a step of a series per line (columns series, number "
        "and the channels), or .jsonl with text, tokens or series, and number"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.mean) > 1 and not self.rows:
            raise ValueError("several numbers are a row")

    @classmethod
    def check(cls, y: Any, inputs: Sequence[Item], steps: bool | None = None) -> Checked:
        """(1, numbers) for each sequence or, with ``steps``, (N, numbers); without it, y shows which of them it holds.

        Lists that are as long as their sequences, or of unequal lengths, are numbers of steps; an array (sequences,
        numbers) or a table never is.
        """
        table = hasattr(y, "columns") or getattr(y, "ndim", 0) == 2
        y = y if hasattr(y, "columns") else listed(y, "numbers")
        if steps is None:
            steps = not table and _long_as(y, inputs)
        if not steps:
            found, rows = numbers_of(y, "y")
            return list(found[:, None]), {"rows": rows}
        each = [numbers_of(one, f"y[{k}]") for k, one in enumerate(y)]
        if len({(rows, found.shape[1]) for found, rows in each}) > 1:
            raise InputError("must hold as many numbers for each step", setting="y")
        return [found for found, _ in each], {"rows": any(rows for _, rows in each), "per_step": True}

    def describe(self) -> str:
        return f"{self.size} number(s) for each {'step' if self.per_step else 'sequence'}"

    def shaped(self, numbers: np.ndarray) -> np.ndarray:
        """(..., numbers), without the last axis if an answer is a number."""
        return numbers if self.rows else numbers[..., 0]

    def given(self, values: np.ndarray, item: Item) -> Any:
        found = self.shaped(self.decode(values))
        return found if self.per_step else found[0]

    def right(self, target: Any) -> np.ndarray:
        found: np.ndarray = target
        if found.shape[1] != self.size:
            raise InputError(f"must hold {self.describe()}, as this model predicts; got {found.shape[1]}", setting="y")
        return found

    def score(self, found: Encoded, wanted: Encoded, weights: np.ndarray) -> float:
        """R², of rows of numbers the mean over the columns: 1 is perfect, 0 is as good as the mean of y."""
        each = np.repeat(weights, [len(one) for one in wanted])
        return r_squared(self.decode(np.concatenate(found)), np.concatenate(wanted), each)

    def scores(self, found: Encoded, wanted: Encoded) -> NumberScores:
        """R², RMSE and MAE, and what predicting the mean of the training part has."""
        return NumberScores.of(self.decode(np.concatenate(found)), np.concatenate(wanted), self.mean)

    def compared(self, found: Encoded, wanted: Encoded) -> str:
        return str(self.scores(found, wanted))


def _long_as(y: list[Any], inputs: Sequence[Item]) -> bool:
    if not all(isinstance(one, list | tuple) or getattr(one, "ndim", 0) for one in y):
        return False
    sizes = [len(one) for one in y]
    return len(set(sizes)) > 1 or sizes == [len(one) for one in inputs]


@dataclasses.dataclass(frozen=True)
class NumberScores:
    """How far predictions are from the right numbers; of rows of numbers, the means over their columns."""

    r2: float
    rmse: float
    mae: float
    mean_rmse: float
    """RMSE of always predicting the mean of the training part."""
    mean_mae: float
    count: int

    @staticmethod
    def of(found: Any, wanted: Any, mean: Any) -> NumberScores:
        """Those of predictions (sequences, numbers); ``mean`` (numbers,) is that of the training part."""
        error, other = np.asarray(found) - wanted, np.asarray(mean) - wanted
        rmse, mean_rmse = (float(np.sqrt((off**2).mean(axis=0)).mean()) for off in (error, other))
        mae, mean_mae = (float(np.abs(off).mean()) for off in (error, other))
        return NumberScores(r_squared(found, wanted), rmse, mae, mean_rmse, mean_mae, len(wanted))

    def __str__(self) -> str:
        return (
            f"R² {self.r2:.4f}, RMSE {self.rmse:.6g}, MAE {self.mae:.6g} of {self.count:,} answers; always the "
            f"mean of the training part: RMSE {self.mean_rmse:.6g}, MAE {self.mean_mae:.6g}"
        )


def r_squared(found: Any, wanted: Any, weights: Any = None) -> float:
    """1 - squared errors / squared differences from the mean of ``wanted`` (sequences, numbers), over the columns.

    As scikit-learn's ``r2_score``: a column whose numbers are all the same counts 1 if they are met, else 0; of fewer
    than two sequences NaN.
    """
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    if len(wanted) < 2:
        return float("nan")
    share = np.ones(len(wanted)) if weights is None else np.asarray(weights, np.float64)
    left = share @ (found - wanted) ** 2
    all_of_it = share @ (wanted - np.average(wanted, axis=0, weights=share)) ** 2
    # rounding may give a constant some deviation, and tiny numbers none
    varies = (np.ptp(wanted[share > 0], axis=0) > 0) & (all_of_it > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(varies, 1 - left / all_of_it, np.where(left == 0, 1.0, 0.0))
    return float(each.mean())
