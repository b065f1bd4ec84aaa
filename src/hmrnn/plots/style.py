"""The look that all figures share: fonts, line widths and colours; and how they are written to files.

Figures are plain ``Figure`` objects: without pyplot they need no window system and are freed when no longer used.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hmrnn.errors import InputError
from hmrnn.utils import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, RED, SKY, PINK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
BLACK, GREY = "#000000", "#767676"
SMALL = 7.0
"""Font size of labels inside a figure, in points."""
LARGEST = 200
"""Inches; a PNG of 300 dpi holds 218."""
_FIGURES = (".png", ".svg", ".pdf")
_STYLE: dict[Any, Any] = {
    "text.usetex": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "hmrnn",
    "pdf.fonttype": 42,
}


def styled() -> AbstractContextManager[None]:
    """A context in which matplotlib uses the settings of this package."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """An empty white figure; sizes in inches."""
    from matplotlib.figure import Figure

    if max(width, height) > LARGEST:
        raise InputError(
            f"a figure measures {LARGEST} inches at most; this one would have {width:.0f} x {height:.0f}: draw a part, "
            "such as found[:270]"
        )
    return Figure(figsize=(width, height), facecolor="white", **options)


def new_page(width: float, height: float, xlim: tuple[float, float], ylim: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure, and axes that fill it without being seen."""
    figure = new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=xlim, ylim=ylim)
    return figure, axes


def superscript(number: int) -> str:
    """The number in superscript digits."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def check_figure_path(path: str | Path) -> str:
    """The ending of a path that a figure can be written to: .png, .svg or .pdf, in a folder that there is."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _FIGURES:
        raise InputError(f"a figure is written as {', '.join(_FIGURES)}; got {path.name!r}: change its ending")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {path}: {files.ADVICE}")
    return kind


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG (300 dpi), SVG (text stays text) or PDF, and return the path."""
    path = Path(path)
    kind = check_figure_path(path)
    # Without dates the same figure gives the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)
    with files.replacing(path, advice=files.ADVICE) as file, styled():
        figure.savefig(file, format=kind[1:], dpi=300, metadata=metadata)
    return path
