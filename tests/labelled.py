"""Small sequences with labels, tags and pairs, and small settings, for tests of the estimators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

SMALL: dict[str, Any] = {"hidden_size": 6, "num_layers": 2, "embedding_size": 4, "epochs": 2, "batch_size": 8}
TEXTS = ["ab" * k for k in range(1, 9)] + ["cd" * k for k in range(1, 9)]
LABELS = ["first"] * 8 + ["second"] * 8
NUMBERS = [1 + 0.1 * k for k in range(8)] + [5 + 0.1 * k for k in range(8)]
SENTENCES = [["the", "cat", "sat"], ["a", "dog", "ran"], ["cat", "ran"], ["dog"]] * 3
TAGS = [["D", "N", "V"], ["D", "N", "V"], ["N", "V"], ["N"]] * 3
WORDS = ["ab", "ba", "abb", "bab", "aab", "bba", "abab", "baba"]
SOUNDS = [list(word.upper()) for word in WORDS]

WAVE = np.sin(np.arange(200) / 3)


def series(seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Series of unequal lengths and two channels: the mean of the first tells the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(16) % 2
    return [rng.normal(size=(int(rng.integers(3, 9)), 2)) + [3 * k, 0] for k in y], y


FIT: list[tuple[str, Any, Any]] = [
    ("HMClassifier", TEXTS, LABELS), ("HMRegressor", TEXTS, NUMBERS), ("HMTagger", SENTENCES, TAGS),
    ("HMTransducer", WORDS, SOUNDS), ("HMForecaster", WAVE, None),
]  # fmt: skip
"""What each estimator may be fitted to."""


class Table:
    """Named columns, as a DataFrame has them: ``np.asarray`` of columns of different kinds holds objects."""

    def __init__(self, columns: Sequence[Any], rows: Any) -> None:
        self.columns, self.rows = columns, np.asarray(rows)
        self.shape, self.ndim = self.rows.shape, self.rows.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.rows.astype(dtype or self.rows.dtype)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.columns)

    def __getitem__(self, names: Any) -> Any:
        if isinstance(names, str):
            return np.array(self.rows[:, list(self.columns).index(names)].tolist())
        return Table(names, self.rows[:, [list(self.columns).index(name) for name in names]])
