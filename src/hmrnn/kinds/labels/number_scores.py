"""Scores of predicted numbers: R², RMSE and MAE, beside those of one number for all."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


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
