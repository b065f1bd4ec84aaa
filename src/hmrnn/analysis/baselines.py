"""Segment ends without a detector: at fixed distances, or where a model's prediction is surprised or uncertain.

An end is the number of symbols before a cut, as in ``Segmentation.ends``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def fixed_length(length: int, rate: float) -> np.ndarray:
    """Ends at distances that differ by at most one symbol, ``rate`` of them per position."""
    if rate <= 0:
        return np.zeros(0, np.int64)
    count = math.floor(rate * max(0, length - 1) + 1e-9)
    return np.floor(np.arange(1, count + 1) / rate + 1e-9).astype(np.int64)


def surprise_rises(surprises: Sequence[ArrayLike], rate: float = 1.0) -> list[np.ndarray]:
    """An end before every symbol whose surprise is higher than that of the symbol before it.

    Of all sequences only the largest rises, at most ``rate`` of them per position. The surprise (T,) of a sequence is
    -log p of each symbol given those before it, in any unit; NaN where there is no prediction.
    """
    rises = [np.nan_to_num(np.diff(np.asarray(surprise, np.float64)), nan=0.0) for surprise in surprises]
    return _highest([np.where(rise > 0, rise, -np.inf) for rise in rises], rate)


def uncertainty(surprise: Any, expected: Any) -> Any:
    """A score for an end before each symbol: expected[t] + surprise[t] / 4 - expected[t-1] / 4.

    Arrays or tensors (T, ...): ``expected`` is the entropy of the prediction of each symbol, ``surprise`` is -log p of
    the symbol. For the first symbol, expected[t-1] is expected[t]. The factors were found on the validation part of
    Penn Treebank without its spaces (results/searches.md).
    """
    result = expected + surprise / 4
    result[1:] -= expected[:-1] / 4
    result[:1] -= expected[:1] / 4
    return result


def most_uncertain(surprises: Sequence[ArrayLike], expected: Sequence[ArrayLike], rate: float) -> list[np.ndarray]:
    """Ends at the highest :func:`uncertainty` of all sequences, ``rate`` of them per position."""
    pairs = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(surprises, expected))
    return _highest([np.nan_to_num(uncertainty(*pair)[1:], nan=-np.inf) for pair in pairs], rate)


def _highest(scores: Sequence[np.ndarray], rate: float) -> list[np.ndarray]:
    """Ends at the highest scores, ``rate`` of them per position; a score of minus infinity is never an end."""
    together = np.concatenate([np.zeros(0), *scores])
    highest = np.zeros(len(together), bool)
    highest[np.argsort(-together, kind="stable")[: round(rate * len(together))]] = True
    ends = np.split(highest & (together > -np.inf), np.cumsum([len(part) for part in scores]))
    return [np.flatnonzero(part) + 1 for part in ends[: len(scores)]]
