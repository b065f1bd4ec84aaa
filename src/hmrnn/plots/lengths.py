"""Histograms of segment lengths: the timescale of every level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hmrnn.errors import InputError
from hmrnn.plots.style import BLUE, ORANGE, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def timescales(lengths: Sequence[np.ndarray], *, unit: str = "symbols") -> Figure:
    """One histogram of segment lengths per level, on a shared logarithmic axis, with the median marked.

    ``lengths`` has one array per level, such as ``found.lengths(1)``.
    """
    arrays = [np.asarray(level) for level in lengths]
    if not arrays or any(array.size == 0 or array.min() < 1 for array in arrays):
        raise InputError("lengths must hold an array per level, each of one or more lengths of at least 1")
    from matplotlib.ticker import NullFormatter

    longest = max(int(array.max()) for array in arrays)
    edges = np.unique(np.geomspace(1, longest + 1, 30).round()) - 0.5  # bins of one number first, then wider ones
    with styled():
        figure = new_figure(6.4, 0.5 + 1.15 * len(arrays), layout="constrained")
        panels = figure.subplots(len(arrays), 1, sharex=True, squeeze=False)[:, 0]
        for l, (axes, array) in enumerate(zip(panels, arrays), start=1):
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
        lowest.xaxis.set_minor_formatter(NullFormatter())
    return figure
