"""Write figures to files, by the ending of the path. A file is written completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hmrnn.errors import InputError
from hmrnn.plots.style import styled
from hmrnn.utils import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIGURES = (".png", ".svg", ".pdf")


def check_figure_path(path: str | Path) -> str:
    """The ending of a path that a figure can be written to: .png, .svg or .pdf; InputError for any other."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in _FIGURES:
        raise InputError(f"a figure is written as {', '.join(_FIGURES)}; got {path.name!r}: change its ending")
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
