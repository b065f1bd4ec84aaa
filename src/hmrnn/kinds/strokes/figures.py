"""Figure 5 of the paper, and handwriting as a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hmrnn.analysis.scores import Row, compare, ends_of
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.gold import pen_ups
from hmrnn.kinds.strokes.ink import INK, PRIME, Sheet, check_drawable
from hmrnn.kinds.strokes.strokes import coordinates, counted
from hmrnn.plots.style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, new_figure, new_page, styled, superscript

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, RED, SKY, PINK, BLACK)
"""Of segments, in turn; neighbours in this order are easy to tell apart."""
_WIDTH, _SCORES = 7.2, 1.35  # inches: the figure, the column of scores in it
_MOST_INCHES = 6.0  # height of a panel
_MARGIN = 0.02  # around a line, as a share of its longer side


def figure5(
    steps: np.ndarray,
    segmentation: Segmentation,
    *,
    levels: Sequence[int] = (2,),
    letters: np.ndarray | None = None,
) -> Figure:
    """Figure 5 of the paper: a line (T, 3) coloured by its pen strokes, and below by its segments at each level.

    With the ``letters`` (T,) that points belong to it is coloured by them, too.

    Beside each level: how well the segment ends agree with the ends of strokes, exactly and within one point, and the
    F1 that the same number of random ends would reach.
    """
    if len(steps) != len(segmentation):
        raise InputError(f"steps must be the {len(segmentation)} points of the segmentation; got {len(steps)}")
    for level in levels:
        segmentation.ends(level)  # raises InputError if there is no such level
    check_drawable([steps])
    strokes = [*pen_ups(steps[:-1]).tolist(), len(steps)]
    rows = [("pen strokes", strokes, f"{len(strokes)} strokes")]
    if letters is not None:
        ends = [*ends_of(np.diff(letters)).tolist(), len(steps)]
        rows.append(("letters", ends, f"{len(ends)} pieces"))
    for level in levels:
        ends = segmentation.ends(level)
        [row, *_] = compare([[ends]], {"pen-ups": [pen_ups(steps)]}, [len(steps)])
        rows.append((f"segments of z{superscript(level)}", ends, _scores(ends, row)))

    points = coordinates(steps)
    wide, high = (float(size) for size in np.ptp(points, axis=0))
    width = _WIDTH - _SCORES
    around = 2 * _MARGIN * max(wide, high)
    height = min(_MOST_INCHES, max(0.85, (width - 0.16) * (high + around) / (wide + around)))
    title = 0.22
    total = len(rows) * (height + title) + 0.1
    with styled():
        figure = new_figure(_WIDTH, total)
        for k, (name, ends, text) in enumerate(rows):
            bottom = total - (k + 1) * (height + title)
            axes = figure.add_axes((0.08 / _WIDTH, bottom / total, (width - 0.16) / _WIDTH, height / total))
            _draw(axes, points, steps[:, 2] > 0.5, ends, f"row-{k}")
            figure.text(0.08 / _WIDTH, (bottom + height + 0.05) / total, name, fontsize=8)
            figure.text(width / _WIDTH, (bottom + height / 2) / total, text, fontsize=7, va="center", linespacing=1.35)
    return figure


def writing(lines: Sequence[np.ndarray], *, prime: np.ndarray | None = None) -> Figure:
    """A figure of lines (T, 3) below each other, as :func:`hmrnn.kinds.strokes.ink.svg` draws them."""
    from matplotlib.collections import LineCollection

    sheet = Sheet(lines, prime)
    width = 9.0
    height = min(100.0, max(0.3, width * sheet.height / sheet.width))
    with styled():
        figure, axes = new_page(width, height, (0, sheet.width), (sheet.height, 0))
        axes.set_aspect("equal")
        pen = sheet.pen / sheet.width * width * 72  # points
        for line in sheet.lines:
            for parts, colour in ((line.prime, PRIME), (line.ink, INK)):
                ink = [part if len(part) > 1 else np.repeat(part, 2, axis=0) for part in parts]
                axes.add_collection(LineCollection(ink, colors=colour, linewidths=pen, capstyle="round"))
    return figure


def _draw(axes: Axes, points: np.ndarray, up: np.ndarray, ends: list[int], name: str) -> None:
    """Draw the ink from each point to the next, in the colour of the segment of the second point."""
    from matplotlib.collections import LineCollection

    number = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))  # (T,): which segment a point belongs to
    inked = np.flatnonzero(~up[:-1]) + 1
    parts = np.split(inked, np.flatnonzero((np.diff(inked) > 1) | (np.diff(number[inked]) > 0)) + 1)
    pieces = {part[0]: points[part[0] - 1 : part[-1] + 1] for part in parts if len(part)}
    dots = np.flatnonzero(up & np.concatenate([[True], up[:-1]]))  # strokes of one point
    pieces |= {dot: points[[dot, dot]] for dot in dots}
    colours = [COLOURS[number[t] % len(COLOURS)] for t in pieces]
    axes.add_collection(LineCollection([*pieces.values()], colors=colours, linewidths=1.1, capstyle="round", gid=name))
    axes.set_axis_off()
    margin = _MARGIN * float(np.ptp(points, axis=0).max())
    (left, top), (right, bottom) = points.min(axis=0) - margin, points.max(axis=0) + margin
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")


def _scores(ends: list[int], row: Row) -> str:
    """Scores of one level as text."""
    lines = [counted(len(ends), "segment")]
    for tolerance, score in row.scores.items():
        near = "exactly at pen-ups" if tolerance == 0 else f"within {tolerance} point"
        lines += [near + ":", f"  P {_percent(score.precision)}  R {_percent(score.recall)}  F1 {_percent(score.f1)}"]
        f1 = row.chance[tolerance]
        if tolerance == 0 and ends[-1] > 1:  # expected hits of random ends
            f1 = replace(score, hits=score.found * score.gold / (ends[-1] - 1)).f1
        lines.append(f"  by chance F1 {_percent(f1)}")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.0%}"
