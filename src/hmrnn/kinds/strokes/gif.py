"""Strokes as an animated GIF, for places that cannot show an animated SVG."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.strokes.ink import INK, PRIME, Line, Sheet
from hmrnn.kinds.strokes.strokes import Lines

SECONDS, MOST_SECONDS = 8.0, 600.0
"""Duration of the writing: default and maximum."""
STAYS = 3.0
"""Seconds for which the complete picture is shown before the animation starts again."""
_FRAMES, _MOST_FRAMES = 12.5, 100  # per second, in total
_WIDTH, _MOST_HEIGHT = 900, 2000  # pixels
_FINER = 3  # supersampling factor, for smooth edges
WRITTEN, BEFORE, PAPER = 0, 127, 255
"""The shades of ink, of the prime and of paper."""


def check_seconds(seconds: float) -> None:
    """InputError unless a GIF can last that long."""
    if not 0 < seconds <= MOST_SECONDS:
        raise InputError(f"a .gif can be animated for up to {MOST_SECONDS:g} seconds; got {seconds:g}")


def gif(lines: Lines, *, prime: np.ndarray | None = None, seconds: float = SECONDS) -> bytes:
    """The bytes of a looping GIF in which all lines (T, 3) are written at once, below each other, in ``seconds``.

    ``prime`` is drawn in grey before each line, from the first frame on. The last frame is the complete picture and
    stays for ``STAYS`` seconds.
    """
    from PIL import Image, ImageDraw

    check_seconds(seconds)
    sheet = Sheet(lines, prime)
    points = max(sum(map(len, line.ink)) for line in sheet.lines)
    count = max(2, min(round(_FRAMES * seconds), _MOST_FRAMES, points + 1))
    scale = min(_WIDTH / sheet.width, _MOST_HEIGHT / sheet.height)
    width, height = (_FINER * max(1, round(scale * size)) for size in (sheet.width, sheet.height))
    canvas = Image.new("L", (width, height), PAPER)
    draw, pen = ImageDraw.Draw(canvas), max(_FINER, round(_FINER * scale * sheet.pen))

    def write(stroke: np.ndarray, shade: int) -> None:
        places = [(x, y) for x, y in (_FINER * scale * stroke).tolist()]
        draw.line(places, fill=shade, width=pen)
        for x, y in places:  # round ends
            draw.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), fill=shade)

    for stroke in itertools.chain.from_iterable(line.prime for line in sheet.lines):
        write(stroke, BEFORE)
    frames = []
    for k in range(count):
        for line in sheet.lines:
            for stroke in _between(line, (k - 1) / (count - 1), k / (count - 1)):
                write(stroke, WRITTEN)
        frames.append(canvas.reduce(_FINER))
        frames[-1].putpalette(_palette())
    hundredths = max(2, round(100 * seconds / (count - 1)))  # the unit of the format; viewers do not go below 2
    times, file = [10 * hundredths] * (count - 1) + [round(1000 * STAYS)], io.BytesIO()
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, disposal=1, optimize=True
    )
    return file.getvalue()


def _between(line: Line, begin: float, end: float) -> Iterator[np.ndarray]:
    """The ink between two fractions of a line's points; a stroke cut by ``begin`` starts at its last drawn point."""
    total, before = sum(map(len, line.ink)), 0
    low, high = (round(max(0.0, share) * total) for share in (begin, end))
    for stroke in line.ink:
        new = slice(max(low - before, 0), max(high - before, 0))
        if len(stroke[new]):
            yield stroke[max(new.start - 1, 0) : new.stop]
        before += len(stroke)


def _palette() -> list[int]:
    """RGB values of all shades: of the ink, of the prime, of paper, and between them."""
    full = [[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in (INK, PRIME, "#ffffff")]
    parts = [np.interp(range(256), (WRITTEN, BEFORE, PAPER), part) for part in zip(*full)]
    return [int(value) for value in np.rint(np.stack(parts, axis=1)).ravel()]
