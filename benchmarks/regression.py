"""HMRegressor beside the same with torch's LSTM, and beside Ridge and gradient boosting on features made by hand.

    python benchmarks/regression.py                     needs scikit-learn, which the extra test installs
    python benchmarks/regression.py bursts words --seed 1 --out FILE

Features of a series: mean, deviation, least, largest and last value and quartiles of each channel, and the length
("summary"), or all steps in a row, padded with zeros ("flat"); of a text: counts of characters and of pairs of them.
Prints R² and MAE on the test part; --out appends each row as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hmrnn
from hmrnn.kinds.labels.answers.numbers import NumberScores
from hmrnn.kinds.text.sources import manual

Data = tuple[list[Any], np.ndarray]
COUNT = 500
"""Sequences to train on, of which a tenth chooses the epoch of a network; and sequences to test with."""


def bursts(random: np.random.Generator, test: bool) -> Data:
    """How many bursts of 3 to 6 steps, 0 to 8, are in a noisy series of 60 to 119 steps."""
    X, y = [], random.integers(0, 9, COUNT)
    for wanted in y:
        series = random.normal(size=int(random.integers(60, 120)))
        for start in random.permutation(np.arange(0, len(series) - 6, 7))[:wanted]:
            series[start : start + random.integers(3, 7)] += 3
        X.append(series[:, None])
    return X, y.astype(float)


def marker(random: np.random.Generator, test: bool) -> Data:
    """The value of one channel where the other has the last of 1 to 4 marks, in 50 to 99 steps."""
    X, y = [], []
    for _ in range(COUNT):
        series = np.zeros((int(random.integers(50, 100)), 2))
        series[:, 0] = random.uniform(-1, 1, len(series))
        places = random.permutation(len(series))[: random.integers(1, 5)]
        series[places, 1] = 1
        X.append(series)
        y.append(series[places.max(), 0])
    return X, np.array(y)


def sums(random: np.random.Generator, test: bool) -> Data:
    """The value of a text such as 3+5-2+8, of 4 to 15 digits."""
    X, y = [], []
    for _ in range(COUNT):
        digits, signs = random.integers(0, 10, size := int(random.integers(4, 16))), random.choice([-1, 1], size)
        signs[0] = 1
        X.append("".join(f"{'+' if sign > 0 else '-'}{digit}" for sign, digit in zip(signs, digits))[1:])
        y.append(float((signs * digits).sum()))
    return X, np.array(y)


def words(random: np.random.Generator, test: bool) -> Data:
    """How many words begin in 60 characters of the Python manual whose spaces are removed; tested on its last fifth."""
    found = manual().split()
    cut = len(found) * 4 // 5
    part = found[cut:] if test else found[:cut]
    X, y = [], []
    for start in random.integers(0, len(part) - 60, COUNT):
        some = part[start : start + 60]
        X.append("".join(some)[:60])
        y.append(float(np.searchsorted(np.cumsum([len(word) for word in some]), 60) + 1))
    return X, np.array(y)


def features(X: Sequence[Any], kind: str, longest: int) -> np.ndarray:
    """(sequences, features) of series."""
    if kind == "flat":
        return np.stack([np.pad(one, ((0, longest - len(one)), (0, 0))).ravel() for one in X])
    rows = []
    for one in X:
        quartiles = np.quantile(one, [0.25, 0.5, 0.75], axis=0)
        parts = [one.mean(0), one.std(0), one.min(0), one.max(0), one[-1], *quartiles, [len(one)]]
        rows.append(np.concatenate(parts))
    return np.array(rows)


def by_hand(train: Data, test: Data, seed: int) -> list[tuple[str, np.ndarray]]:
    """The predictions of Ridge, its penalty chosen by cross-validation, and of gradient boosting, on all features."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if isinstance(train[0][0], str):
        counts = CountVectorizer(analyzer="char", ngram_range=(1, 2), lowercase=False).fit(train[0])
        made = {"counts": [counts.transform(X).toarray().astype(float) for X, _ in (train, test)]}
    else:
        longest = max(len(one) for X, _ in (train, test) for one in X)
        made = {kind: [features(X, kind, longest) for X, _ in (train, test)] for kind in ("summary", "flat")}
    found = []
    for kind, (X, X_test) in made.items():
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
        for name, model in (("ridge", ridge), ("boosting", HistGradientBoostingRegressor(random_state=seed))):
            found.append((f"{name}, {kind}", model.fit(X, train[1]).predict(X_test)))
    return found


PROBLEMS: dict[str, Callable[[np.random.Generator, bool], Data]] = {
    "bursts": bursts, "marker": marker, "sums": sums, "words": words,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=", ".join(PROBLEMS))
    parser.add_argument("--seed", type=int, default=0, help="of the networks and of boosting; the data are the same")
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    how = {"hidden_size": given.hidden_size, "num_layers": given.num_layers, "epochs": given.epochs}
    for name in given.problems or PROBLEMS:
        train, test = (PROBLEMS[name](np.random.default_rng(7 + k), k == 1) for k in range(2))
        rows: list[tuple[str, np.ndarray, float]] = []
        for rnn in ("hm-lstm", "lstm"):
            began = time.process_time()
            model = hmrnn.HMRegressor(rnn=rnn, random_state=given.seed, **how).fit(*train)
            rows.append((rnn, model.predict(test[0]), time.process_time() - began))
        rows += [(label, found, 0.0) for label, found in by_hand(train, test, given.seed)]
        for label, found, seconds in rows:
            scores = NumberScores.of(found[:, None], test[1][:, None], [train[1].mean()])
            print(f"{name}  {label}: R² {scores.r2:.3f}, MAE {scores.mae:.3g} ({scores.mean_mae:.3g} by the mean)")
            if given.out is not None:
                line = {"data": name, "model": label, "seed": given.seed, "r2": scores.r2, "mae": scores.mae}
                line |= {"mean_mae": scores.mean_mae, "cpu_seconds": round(seconds, 1), **how}
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
