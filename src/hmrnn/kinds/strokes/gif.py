"""Strokes as an animated GIF, for places that cannot show an animated SVG."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.strokes.ink import INK, PRIME, Line, Sheet
from hmrnn.kinds.strokes.strokes import Lines

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

SECONDS, MOST_SECONDS = 8.0, 600.0
"""Duration of the writing: default and maximum."""
STAYS = 3.0
"""Seconds for which the complete picture is shown before the animation starts again."""
_FRAMES, _MOST_FRAMES = 12.5, 100  # per second, in total
_WIDTH, _MOST_HEIGHT = 900, 2000  # pixels
_FINER = 3  # supersampling factor, for smooth edges
_SHADES = 16  # of each colour, from white to the full colour


def check_seconds(seconds: float) -> None:
    """InputError unless a GIF can last that long."""
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"a .gif can be animated for up to {MOST_SECONDS:g} seconds; got {seconds:g}")


def gif(lines: Lines, *, prime: np.ndarray | None = None, seconds: float = SECONDS) -> bytes:
    """The bytes of a looping GIF in which all lines (T, 3) are written at once, below each other, in ``seconds``.

    ``prime`` is drawn in grey before each line, from the first frame on. The last frame is the complete picture and
    stays for ``STAYS`` seconds.
    """
    check_seconds(seconds)
    sheet = Sheet(lines, prime)
    points = max(sum(map(len, line.ink)) for line in sheet.lines)
    count = max(2, min(round(_FRAMES * seconds), _MOST_FRAMES, points + 1))
    first, *others = _frames(sheet, count)
    hundredths = max(2, round(100 * seconds / (count - 1)))  # the unit of the format; viewers do not go below 2
    durations = [10 * hundredths] * (count - 1) + [round(1000 * STAYS)]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0, disposal=1, optimize=True)
    return file.getvalue()


def _frames(sheet: Sheet, count: int) -> Iterator[Image]:
    """``count`` frames, from no ink to all of it."""
    from PIL import Image, ImageDraw

    scale = min(_WIDTH / sheet.width, _MOST_HEIGHT / sheet.height)
    width, height = (max(1, round(scale * size)) for size in (sheet.width, sheet.height))
    canvas, palette = Image.new("RGB", (_FINER * width, _FINER * height), "white"), Image.new("P", (1, 1))
    palette.putpalette(_palette())
    pen = _Pen(ImageDraw.Draw(canvas), _FINER * scale, sheet.pen)
    for stroke in itertools.chain.from_iterable(line.prime for line in sheet.lines):
        pen.draw(stroke, PRIME)
    for k in range(count):
        for line in sheet.lines:
            for stroke in _between(line, (k - 1) / (count - 1), k / (count - 1)):
                pen.draw(stroke, INK)
        yield canvas.reduce(_FINER).quantize(palette=palette, dither=Image.Dither.NONE)


def _between(line: Line, begin: float, end: float) -> Iterator[np.ndarray]:
    """The ink between two fractions of a line's points; a stroke cut by ``begin`` starts at its last drawn point."""
    total, before = sum(map(len, line.ink)), 0
    low, high = (round(max(0.0, share) * total) for share in (begin, end))
    for stroke in line.ink:
        new = slice(max(low - before, 0), max(high - before, 0))
        if len(stroke[new]):
            yield stroke[max(new.start - 1, 0) : new.stop]
        before += len(stroke)


class _Pen:
    """Draws strokes with round ends on a picture; points are in the units of a sheet."""

    def __init__(self, draw: ImageDraw, scale: float, width: float) -> None:
        self.on, self.scale = draw, scale
        self.width = max(_FINER, round(scale * width))

    def draw(self, points: np.ndarray, colour: str) -> None:
        places = [tuple(place) for place in (self.scale * points).tolist()]
        self.on.line(places, fill=colour, width=self.width)
        r = self.width / 2
        for x, y in places:
            self.on.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def _palette() -> list[int]:
    """RGB values: white, the shades of the ink, the shades of the prime."""
    result = [255, 255, 255]
    for colour in (INK, PRIME):
        full = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
        for shade in range(1, _SHADES):
            result += [round(255 + (part - 255) * shade / (_SHADES - 1)) for part in full]
    return result
