"""Training curves from the metrics of a run, and histograms of segment lengths: the timescale of every level."""

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

_LEVELS = (GREEN, PINK, RED, ORANGE, BLUE)
_LABELS = {"bits": "bits per symbol", "nats": "nats per sequence"}


def curves(metrics: Sequence[dict[str, Any]]) -> Figure:
    """Training curves of a run: bits per symbol (strokes: nats per sequence), and below the boundary rates.

    ``metrics`` are the records of metrics.jsonl; the events "train" and "valid" are drawn.
    """
    train, valid = ([record for record in metrics if record.get("event") == event] for event in ("train", "valid"))
    if not train and not valid:
        raise InputError("there is nothing to draw: the metrics have no record of training or validation")
    levels = len((train or valid)[0]["rates"])
    heights = [3, 2] if levels else [3]
    with styled():
        figure = new_figure(6.4, 4.6 if levels else 3.0, layout="constrained")
        panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        lowest = panels[-1]
        _draw_measure(panels[0], train, valid)
        for l in range(levels):
            style: dict[str, Any] = {"color": _LEVELS[l % 5], "linewidth": 1.2, "markersize": 3.5}
            label = f"z{superscript(l + 1)}"
            lowest.plot(_column(train, "step"), [r["rates"][l] for r in train], label=label, **style)
            lowest.plot(_column(valid, "step"), [r["rates"][l] for r in valid], marker="o", linestyle="", **style)
        if levels:
            lowest.set_ylim(bottom=0)
            lowest.set_ylabel("boundary rate")
            lowest.legend(frameon=False, ncols=levels)
        lowest.set_xlabel("updates")
        lowest.margins(x=0.02)
        for axes in panels:
            axes.grid(axis="y", color="#e0e0e0", linewidth=0.5)
            axes.set_axisbelow(True)
    return figure


def _draw_measure(axes: Axes, train: list[dict[str, Any]], valid: list[dict[str, Any]]) -> None:
    unit = next(unit for unit in _LABELS if unit in (train or valid)[0])
    trained, validated = _column(train, unit), _column(valid, unit)
    known = validated[np.isfinite(validated)]
    if train:
        axes.plot(_column(train, "step"), trained, color=ORANGE, linewidth=1, label="training")
    if valid:
        best = float(known.min()) if known.size else math.nan
        axes.axhline(best, color=BLUE, linewidth=0.6, linestyle=":")
        label = f"validation (best {best:{'.1f' if unit == 'nats' else '.3f'}})"
        axes.plot(_column(valid, "step"), validated, label=label, color=BLUE, linewidth=1.5, marker="o", markersize=3.5)
    values = np.concatenate([trained[np.isfinite(trained)], known])
    if values.size:  # the steep start of training may be cut off at the top
        low, high = values.min(), np.quantile(values, 0.95).clip(known.max(initial=-math.inf))
        margin = 0.12 * (high - low) or 0.1
        axes.set_ylim(low - margin, high + margin)
    axes.set_ylabel(_LABELS[unit])
    axes.legend(frameon=False)


def _column(records: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([record[name] for record in records], float)  # None, as JSON has no NaN, becomes one


def timescales(lengths: Sequence[np.ndarray], *, unit: str = "symbols") -> Figure:
    """One histogram of segment lengths per level, on a shared logarithmic axis, with the median marked.

    ``lengths`` has one array per level, such as ``found.lengths(1)``.
    """
    longest = max(int(array.max()) for array in lengths)
    edges = np.unique(np.geomspace(1, longest + 1, 30).round()) - 0.5  # bins of one number first, then wider ones
    with styled():
        figure = new_figure(6.4, 0.5 + 1.15 * len(lengths), layout="constrained")
        panels = figure.subplots(len(lengths), 1, sharex=True, squeeze=False)[:, 0]
        for l, (axes, array) in enumerate(zip(panels, lengths), start=1):
            share = np.histogram(array, edges)[0] / len(array)
            axes.bar(edges[:-1], share, np.diff(edges), align="edge", color=BLUE, edgecolor="white", linewidth=0.4)
            axes.axvline(np.median(array), color=ORANGE, linewidth=1.5)
            axes.set_title(
                f"level {l}: {len(array):,} segments, median {np.median(array):g}, mean {array.mean():.1f} {unit}",
                fontsize=8, loc="left",
            )  # fmt: skip
            axes.set_ylabel("share")
        ticks = [m * 10**k for k in range(len(str(longest))) for m in ((1, 2, 5) if longest < 2000 else (1,))]
        lowest = panels[-1]
        lowest.set(xscale="log", xticks=ticks, xlim=(edges[0], edges[-1]), xlabel=f"{unit} per segment")
        lowest.xaxis.set_major_formatter("{x:g}")
        lowest.minorticks_off()
    return figure
