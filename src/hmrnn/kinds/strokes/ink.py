"""Strokes drawn as SVG in plain Python, still or animated, and the layout that SVG, GIF and figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.strokes.strokes import Lines, as_lines, polylines

INK, PRIME = "#1a1a5e", "#9a9a9a"
_MARGIN, _GAP, _PEN = 0.8, 0.6, 0.05  # around the sheet, between lines, width of the pen; in heights of a stroke


def check_drawable(lines: Sequence[np.ndarray]) -> None:
    """InputError unless every line is finite and has a visible stroke."""
    for number, steps in enumerate(lines, start=1):
        if not np.isfinite(steps).all():
            raise InputError(f"line {number} has steps that are not finite, so it cannot be drawn")
        if not any(len(part) > 1 and np.ptp(part, axis=0).max() > 0 for part in polylines(steps)):
            raise InputError(
                f"line {number} would be an empty picture: the pen never moves while it is down; if a model wrote it, "
                "generate more points or use another model: this one may be untrained or have diverged"
            )


def svg(lines: Lines, *, prime: np.ndarray | None = None, seconds: float = 0.0, width: int = 900) -> str:
    """A picture of a line (T, 3), or of several below each other, as a self-contained SVG document.

    ``prime`` is drawn in grey before each line. With ``seconds`` above 0 the picture is animated for that long: all
    lines are written at once, each stroke in proportion to its number of points.
    """
    sheet = Sheet(lines, prime)
    scale = width / sheet.width  # pixels per unit of the strokes
    height = scale * sheet.height
    style = (
        f"path{{fill:none;stroke:{INK};stroke-width:{scale * sheet.pen:.3f};"
        f"stroke-linecap:round;stroke-linejoin:round}}.prime{{stroke:{PRIME}}}"
    )
    if seconds > 0:
        style += (
            ".ink{stroke-dasharray:1 2;stroke-dashoffset:1.01;animation:write linear forwards}"
            "@keyframes write{to{stroke-dashoffset:0}}"
        )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{round(height)}" '
        f'viewBox="0 0 {width} {height:.2f}">',
        f"<style>{style}</style>",
        f'<rect width="{width}" height="{height:.2f}" fill="#fff"/>',
    ]
    for line in sheet.lines:
        parts += [f'<path class="prime" d="{_path(scale * stroke)}"/>' for stroke in line.prime]
        total, before = sum(map(len, line.ink)), 0
        for stroke in line.ink:
            timing = ""
            if seconds > 0:
                begin, length = seconds * before / total, seconds * len(stroke) / total
                timing = f' pathLength="1" style="animation-duration:{length:.3f}s;animation-delay:{begin:.3f}s"'
            parts.append(f'<path class="ink"{timing} d="{_path(scale * stroke)}"/>')
            before += len(stroke)
    return "\n".join([*parts, "</svg>", ""])


class Line(NamedTuple):
    """The strokes of one line as points (n, 2) on the sheet."""

    prime: list[np.ndarray]
    ink: list[np.ndarray]


class Sheet:
    """Lines laid out below each other within ``width`` and ``height``, in the units of their strokes, y downwards."""

    def __init__(self, lines: Lines, prime: np.ndarray | None = None) -> None:
        every = as_lines(lines)
        if not every:
            raise InputError("a sheet must hold at least one line; got none")
        check_drawable(every)
        before = [] if prime is None else polylines(prime)
        end = np.zeros(2) if prime is None else prime[:, :2].sum(axis=0, dtype=np.float64)
        inks = [[part + end for part in polylines(steps)] for steps in every]
        sizes = [np.ptp(part, axis=0).max() for ink in inks for part in ink if len(part) > 1]
        # The height of a stroke: a high quantile, as every hand has dots and short dashes.
        unit = float(np.quantile(sizes, 0.8)) or float(max(sizes))
        margin = y = _MARGIN * unit
        self.lines: list[Line] = []
        self.width = 0.0
        for ink in inks:
            points = np.concatenate(before + ink)
            low, high = points.min(axis=0), points.max(axis=0)
            by = np.array([margin, y]) - low
            self.lines.append(Line([part + by for part in before], [part + by for part in ink]))
            self.width = max(self.width, float(high[0] - low[0]) + 2 * margin)
            y += float(high[1] - low[1]) + _GAP * unit
        self.pen = _PEN * unit
        self.height = y - _GAP * unit + margin


def _path(points: np.ndarray) -> str:
    """The ``d`` of a path; a single point becomes a line of length 0, which round caps show as a dot."""
    shown = [f"{x:.2f},{y:.2f}" for x, y in (points if len(points) > 1 else np.repeat(points, 2, axis=0))]
    return f"M{shown[0]}L{' '.join(shown[1:])}"
