"""Strokes -> pictures: SVG in plain Python, still or writing itself, one line or a sheet of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmrnn.errors import InputError
from hmrnn.utils import files

FORMATS = (".svg", ".png", ".pdf", ".gif")
INK, PRIME = "#1a1a5e", "#9a9a9a"
GIF_SECONDS, MOST_SECONDS = 8.0, 600.0  # that a .gif takes to write itself if nobody says how many; that it can take
_MARGIN, _GAP, _PEN = 0.8, 0.6, 0.05  # around the sheet, between two lines, width of the ink; in heights of a stroke


def polylines(steps: np.ndarray) -> list[np.ndarray]:
    """The strokes of a line as points (n, 2), from its steps (T, 3): the pen is lifted after a point with pen_up."""
    points = np.cumsum(steps[:, :2], axis=0, dtype=np.float64)
    return [part for part in np.split(points, np.flatnonzero(steps[:, 2] > 0.5) + 1) if len(part)]


def check_drawable(lines: Sequence[np.ndarray]) -> None:
    """InputError unless each of these lines shows something."""
    for number, steps in enumerate(lines, start=1):
        if not np.isfinite(steps).all():
            raise InputError(f"line {number} holds steps that are not finite, so there is nothing to draw")
        if not any(len(part) > 1 and np.ptp(part, axis=0).max() > 0 for part in polylines(steps)):
            raise InputError(
                f"line {number} would be an empty picture: the pen never moves while it is down; if a model wrote it, "
                "give it more points (--length), or another model: this one may be untrained or have diverged"
            )


def svg(
    lines: Sequence[np.ndarray],
    *,
    prime: np.ndarray | None = None,
    seconds: float = 0.0,
    width: int = 900,
) -> str:
    """A picture of lines (T, 3), one below the other, as an SVG document that needs nothing else.

    ``prime`` is drawn in grey before each of them. With ``seconds`` above 0 the picture writes itself in that time, all
    lines at once, each stroke at the speed of its points.
    """
    sheet = Sheet(lines, prime)
    scale = width / sheet.width  # to pixels: strokes may be in any unit
    height = round(scale * sheet.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {scale * sheet.height:.2f}">'
    )
    pen = scale * sheet.pen
    style = (
        f"path{{fill:none;stroke:{INK};stroke-width:{pen:.3f};stroke-linecap:round;stroke-linejoin:round}}"
        f".prime{{stroke:{PRIME}}}"
    )
    if seconds > 0:
        style += (
            ".ink{stroke-dasharray:1 2;stroke-dashoffset:1.01;animation:write linear forwards}"
            "@keyframes write{to{stroke-dashoffset:0}}"
        )
    body = [f'<rect width="{width}" height="{scale * sheet.height:.2f}" fill="#fff"/>']
    for line in sheet.lines:
        body += [f'<path class="prime" d="{_path(scale * part)}"/>' for part in line.prime]
        total, before = sum(map(len, line.ink)), 0
        for part in line.ink:
            timing = ""
            if seconds > 0:
                begin, length = seconds * before / total, seconds * len(part) / total
                timing = f' pathLength="1" style="animation-duration:{length:.3f}s;animation-delay:{begin:.3f}s"'
            body.append(f'<path class="ink"{timing} d="{_path(scale * part)}"/>')
            before += len(part)
    return "\n".join([head, f"<style>{style}</style>", *body, "</svg>", ""])


class Line:
    """The strokes of one line, where they lie on the sheet."""

    def __init__(self, prime: list[np.ndarray], ink: list[np.ndarray]) -> None:
        self.prime, self.ink = prime, ink

    def move(self, by: np.ndarray) -> None:
        self.prime, self.ink = ([part + by for part in parts] for parts in (self.prime, self.ink))


class Sheet:
    """Lines below each other, in the units of their strokes, y downwards, nothing outside of width and height."""

    def __init__(self, lines: Sequence[np.ndarray], prime: np.ndarray | None = None) -> None:
        if not lines:
            raise InputError("a sheet must hold at least one line; got none")
        check_drawable(lines)
        self.lines: list[Line] = []
        before = [] if prime is None else polylines(prime)
        end = np.zeros(2) if prime is None else prime[:, :2].sum(axis=0, dtype=np.float64)
        boxes = []
        for steps in lines:
            ink = [part + end for part in polylines(steps)]
            together = np.concatenate(before + ink)
            boxes.append((together.min(axis=0), together.max(axis=0)))
            self.lines.append(Line(before, ink))
        sizes = [np.ptp(part, axis=0).max() for line in self.lines for part in line.ink if len(part) > 1]
        unit = float(np.quantile(sizes, 0.8))  # a high one: there are dots and short dashes in any hand
        unit = unit if unit > 0 else float(max(sizes))
        margin, y = _MARGIN * unit, _MARGIN * unit
        for line, (low, high) in zip(self.lines, boxes):
            line.move(np.array([margin, y]) - low)
            y += float(high[1] - low[1]) + _GAP * unit
        self.pen = _PEN * unit
        self.width = max(float(high[0] - low[0]) for low, high in boxes) + 2 * margin
        self.height = y - _GAP * unit + margin


def check_suffix(path: Path, seconds: float = 0.0, others: Sequence[str] = ()) -> str:
    """The kind of picture that the path names, one of ``FORMATS``; ``seconds`` is for those that write themselves.

    ``others``: endings under which the caller would have kept it as strokes.
    """
    kind = path.suffix.lower()
    if kind not in FORMATS:
        kept = f", or kept as strokes in {', '.join(others)}" if others else ""
        raise InputError(
            f"handwriting is drawn as {', '.join(FORMATS)}{kept}; got {path.name!r}: change the end of its name"
        )
    if seconds > 0 and kind not in (".svg", ".gif"):
        raise InputError(f"only an .svg or a .gif can write itself; got {path.name!r}: change the end of its name")
    if kind == ".gif":
        check_gif_seconds(seconds or GIF_SECONDS)
    return kind


def check_gif_seconds(seconds: float) -> None:
    """InputError unless a .gif can write itself in that time."""
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"a .gif can take up to {MOST_SECONDS:g} seconds to write itself; got {seconds:g}")


def save(
    lines: Sequence[np.ndarray], path: str | Path, *, prime: np.ndarray | None = None, seconds: float = 0.0
) -> Path:
    """Write a picture of lines as .svg, .png, .pdf or .gif, whole or not at all. The path.

    With ``seconds`` an .svg writes itself in that time; a .gif always does, in ``GIF_SECONDS`` if not told.
    """
    path = Path(path)
    kind = check_suffix(path, seconds)
    if kind == ".svg":
        content = svg(lines, prime=prime, seconds=seconds).encode()
    elif kind == ".gif":
        from hmrnn.plots import gif as drawing_gif

        content = drawing_gif.gif(lines, prime=prime, seconds=seconds or GIF_SECONDS)
    else:
        from hmrnn.plots import strokes as figures_strokes
        from hmrnn.plots import text as figures

        return figures.save(figures_strokes.writing(lines, prime=prime), path)
    return files.write(path, content, advice=files.ELSEWHERE)


def _path(points: np.ndarray) -> str:
    """The ``d`` of a path; a single point is a line of no length, which round caps make a dot."""
    shown = [f"{x:.2f},{y:.2f}" for x, y in (points if len(points) > 1 else np.repeat(points, 2, axis=0))]
    return f"M{shown[0]}L{' '.join(shown[1:])}"
