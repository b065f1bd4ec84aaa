"""Training curves from the metrics of a run, and bar charts of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn.errors import InputError
from hmrnn.plots.style import BLUE, GREEN, ORANGE, PINK, RED, new_figure, styled, superscript

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves(metrics: Sequence[dict[str, Any]]) -> Figure:
    """Training curves of a run: bits per symbol (strokes: nats per sequence), and below the boundary rates.

    ``metrics`` are the records of metrics.jsonl; the events "train" and "valid" are drawn.
    """
    train = [record for record in metrics if record.get("event") == "train"]
    valid = [record for record in metrics if record.get("event") == "valid"]
    if not train and not valid:
        raise InputError("there is nothing to draw: the metrics have no record of training or validation")
    with styled():
        return _curves(train, valid)


def _curves(train: list[dict[str, Any]], valid: list[dict[str, Any]]) -> Figure:
    levels = len((train or valid)[0]["rates"])
    unit = "nats" if "nats" in (train or valid)[0] else "bits"
    style: dict[str, Any]
    figure = new_figure(6.4, 4.6 if levels else 3.0, layout="constrained")
    panels = figure.subplots(
        2 if levels else 1, 1, sharex=True, squeeze=False, height_ratios=[3, 2][: 1 + bool(levels)]
    )

    top: Axes = panels[0, 0]
    if train:
        top.plot(_steps(train), _measures(train, unit), color=ORANGE, linewidth=1, label="training")
    if valid:
        best = min(filter(math.isfinite, _measures(valid, unit)), default=math.nan)
        top.axhline(best, color=BLUE, linewidth=0.6, linestyle=":")
        style = {"color": BLUE, "linewidth": 1.5, "marker": "o", "markersize": 3.5}
        label = f"validation (best {best:{'.1f' if unit == 'nats' else '.3f'}})"
        top.plot(_steps(valid), _measures(valid, unit), label=label, **style)
    top.set_ylim(*_measure_range(_measures(train, unit), _measures(valid, unit)))
    top.set_ylabel({"bits": "bits per symbol", "nats": "nats per sequence"}[unit])
    top.legend(frameon=False)

    if levels:
        bottom: Axes = panels[1, 0]
        for l in range(levels):
            style = {"color": (GREEN, PINK, RED, ORANGE, BLUE)[l % 5], "linewidth": 1.2, "markersize": 3.5}
            label = f"z{superscript(l + 1)}"
            bottom.plot(_steps(train), [r["rates"][l] for r in train], label=label, **style)
            bottom.plot(_steps(valid), [r["rates"][l] for r in valid], marker="o", linestyle="none", **style)
        bottom.set_ylim(bottom=0)
        bottom.set_ylabel("boundary rate")
        bottom.legend(frameon=False, ncols=levels)
    panels[-1, 0].set_xlabel("updates")
    panels[-1, 0].margins(x=0.02)
    for axes in panels[:, 0]:
        axes.grid(axis="y", color="#e0e0e0", linewidth=0.5)
        axes.set_axisbelow(True)
    return figure


def _steps(records: Sequence[dict[str, Any]]) -> list[int]:
    return [record["step"] for record in records]


def _measures(records: Sequence[dict[str, Any]], unit: str) -> list[float]:
    return [math.nan if record[unit] is None else record[unit] for record in records]  # JSON has no NaN


def _measure_range(train: list[float], valid: list[float]) -> tuple[float, float]:
    """Limits of the y axis; the steep start of training may be cut off at the top."""
    values = [value for value in train + valid if math.isfinite(value)] or [0.0]
    low = min(values)
    high = max([float(np.quantile(values, 0.95)), *(value for value in valid if math.isfinite(value))])
    margin = 0.12 * (high - low) or 0.1
    return low - margin, high + margin
