"""The look that all figures share: fonts, line widths and colours.

Figures are plain ``Figure`` objects: without pyplot they need no window system and are freed when no longer used.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hmrnn.errors import InputError

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


def check_columns(columns: int) -> None:
    """InputError unless a line can hold a symbol."""
    if columns < 1:
        raise InputError(f"columns must be at least 1; got {columns}")


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
