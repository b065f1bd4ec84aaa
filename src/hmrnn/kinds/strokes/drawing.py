"""Draw handwriting to a file, by the ending of its path. A file is written completely or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.strokes import gif, ink
from hmrnn.kinds.strokes.figures import writing
from hmrnn.plots.style import save_figure
from hmrnn.utils import files

_DRAWINGS = (".svg", ".png", ".pdf", ".gif")


def check_drawing_path(path: Path, seconds: float = 0.0, others: Sequence[str] = ()) -> str:
    """The ending of a path that handwriting can be drawn to: .svg, .png, .pdf or .gif; InputError for any other.

    Args:
        path: the file to write.
        seconds: duration of the animation; 0 for a still picture.
        others: endings that the caller accepts for stroke data, named in the message.
    """
    kind = path.suffix.lower()
    if kind not in _DRAWINGS:
        data = f", or saved as strokes in {', '.join(others)}" if others else ""
        raise InputError(f"handwriting is drawn as {', '.join(_DRAWINGS)}{data}; got {path.name!r}: change its ending")
    if seconds > 0 and kind not in (".svg", ".gif"):
        raise InputError(f"only .svg and .gif can be animated; got {path.name!r}: change its ending")
    if kind == ".gif":
        gif.check_seconds(seconds or gif.SECONDS)
    return kind


def save_drawing(
    lines: Sequence[np.ndarray], path: str | Path, *, prime: np.ndarray | None = None, seconds: float = 0.0
) -> Path:
    """Draw lines (T, 3) below each other to an .svg, .png, .pdf or .gif file, and return the path.

    With ``seconds`` an .svg is animated for that long; a .gif always is, for 8 seconds by default. ``prime`` is drawn
    in grey before each line.
    """
    path = Path(path)
    kind = check_drawing_path(path, seconds)
    if kind == ".svg":
        content = ink.svg(lines, prime=prime, seconds=seconds).encode()
    elif kind == ".gif":
        content = gif.gif(lines, prime=prime, seconds=seconds or gif.SECONDS)
    else:
        return save_figure(writing(lines, prime=prime), path)
    return files.write(path, content, advice=files.ADVICE)
