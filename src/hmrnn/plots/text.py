"""Text with its boundaries: figures 3 and 4 of the paper, and the segments of every level as coloured blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hmrnn.analysis.render import visible
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.plots.style import GREY, SMALL, new_page, styled, superscript

if TYPE_CHECKING:
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

# Lengths in inches. A full row of 90 symbols is as wide as the text of a page.
_CELL = 0.0744
_TEXT, _LINE, _BLOCK, _GAP = 0.165, 0.13, 0.11, 0.14  # heights: text, line of blocks, block, space between two rows
_LEFT, _RIGHT, _TOP, _FOOT = 0.42, 0.08, 0.06, 0.2
_BARS, _BAR_LINE = 3, 0.17  # colour bars in one line, and its height
_FONT_SIZE = 8.5  # points: a monospaced symbol just fills its cell

# Fonts to try for a symbol, in this order; the first two come with matplotlib, many systems have the others.
_FONTS = ("DejaVu Sans Mono", "DejaVu Sans", "Noto Sans Mono CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP",
          "WenQuanYi Micro Hei", "MS Gothic", "Arial Unicode MS")  # fmt: skip
_BOX = "□"
_LEGEND = "□ boundary     ■ no boundary"


class Glyph(NamedTuple):
    """How a symbol is drawn in its cell."""

    text: str
    family: str
    size: float
    """In points."""


def figure3(segmentation: Segmentation, *, columns: int = 90) -> Figure:
    """Figure 3 of the paper: rows of text, under each symbol a block per detector, white where a segment ends."""
    with styled():
        return _Page(segmentation, columns, 0).figure


def figure4(segmentation: Segmentation, *, columns: int = 90) -> Figure:
    """Figure 4 of the paper: figure 3 with a heat map of the norm of each layer's h under it.

    Each layer has its own colour scale, shown at the foot. A COPY keeps the colour.
    """
    with styled():
        return _Page(segmentation, columns, segmentation.layers).figure


class _Page:
    """Rows of symbols with lines of cells under each, for boundaries and for the norms of some ``layers``.

    x is in cells, y in inches from the top.
    """

    def __init__(self, segmentation: Segmentation, columns: int, layers: int) -> None:
        T, levels = len(segmentation), segmentation.levels
        self.rows = [range(start, min(start + columns, T)) for start in range(0, T, columns)]
        self.pitch = _TEXT + (levels + layers) * _LINE + _GAP
        self.body = _TOP + len(self.rows) * self.pitch
        self.beside = min(layers, _BARS)
        self.cells = max(min(columns, T), 30, 22 * self.beside)
        self.width = _LEFT + self.cells * _CELL + _RIGHT
        self.height = self.body + _FOOT + math.ceil(layers / _BARS) * _BAR_LINE
        across = (-_LEFT / _CELL, self.cells + _RIGHT / _CELL)
        self.figure, self.axes = new_page(self.width, self.height, across, (self.height, 0))
        self._draw_text(segmentation.symbols)
        for l in range(levels):
            style = {"cmap": "gray", "vmin": 0, "vmax": 1, "edgecolors": GREY}
            self._line(l, segmentation.boundaries[:, l], f"z{l + 1}", f"z{superscript(l + 1)}", **style)
        if levels:
            self.axes.text(0, self.body + _FOOT / 2 - 0.04, _LEGEND, va="center_baseline", fontsize=SMALL)
        for l in range(layers):
            norms, label = segmentation.norms[:, l], f"‖h{superscript(l + 1)}‖"
            finite = norms[np.isfinite(norms)]
            low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
            style = {"cmap": "viridis", "vmin": low, "vmax": high if high > low else low + 1, "edgecolors": "face"}
            self._colour_bar(l, label, self._line(levels + l, norms, f"h{l + 1}", label, **style))

    def _draw_text(self, symbols: Sequence[str]) -> None:
        for row, middle in self._each_line(-1):
            self._label(str(row[0] + 1), middle, color=GREY, fontsize=SMALL - 1)
            for column, t in enumerate(row):
                glyph = fit(symbols[t])
                if glyph.text.strip():
                    self.axes.text(
                        column + 0.5, middle, glyph.text, family=[glyph.family, "monospace"], fontsize=glyph.size,
                        ha="center", va="center_baseline", color="black", parse_math=False, gid=f"symbol-{t}",
                    )  # fmt: skip

    def _each_line(self, line: int) -> Iterator[tuple[range, float]]:
        """For each row, its symbols and the y of the middle of line ``line`` of cells; -1 is the text."""
        for k, row in enumerate(self.rows):
            top = _TOP + k * self.pitch
            yield row, top + (_TEXT / 2 if line < 0 else _TEXT + (line + 0.5) * _LINE)

    def _line(self, line: int, values: np.ndarray, name: str, label: str, **style: Any) -> QuadMesh:
        for row, middle in self._each_line(line):
            self._label(label, middle, fontsize=SMALL)
            top, bottom = middle - _BLOCK / 2, middle + _BLOCK / 2
            here = values[row.start : row.stop][None]  # (1, symbols of the row)
            mesh = self.axes.pcolormesh(
                np.arange(len(row) + 1), [top, bottom], here, linewidth=0.3, gid=f"{name}-{row.start}", **style
            )
        return mesh

    def _label(self, text: str, middle: float, **style: Any) -> None:
        self.axes.text(-0.8, middle, text, ha="right", va="center_baseline", **style)

    def _colour_bar(self, l: int, label: str, mesh: QuadMesh) -> None:
        """Label, minimum, colour bar and maximum of a layer, at the foot."""
        pitch, middle = self.cells / self.beside, self.body + _FOOT + (l // self.beside + 0.5) * _BAR_LINE
        x, length, thickness = l % self.beside * pitch, pitch - 13, 0.08
        low, high = mesh.get_clim()
        for at, text, side in ((0, label, "left"), (7.5, f"{low:.2f}", "right"), (8.5 + length, f"{high:.2f}", "left")):
            self.axes.text(x + at, middle, text, ha=side, va="center_baseline", fontsize=SMALL)
        left, bottom = _LEFT + (x + 8) * _CELL, self.height - middle - thickness / 2
        box = (left / self.width, bottom / self.height, length * _CELL / self.width, thickness / self.height)
        bar = self.figure.colorbar(mesh, cax=self.figure.add_axes(box), orientation="horizontal", ticks=[])
        bar.outline.set_visible(False)


def fit(symbol: str) -> Glyph:
    """The symbol, or the two digits of a byte, as large as a cell of the figure allows."""
    byte = len(symbol) == 4 and symbol.startswith("\\x")
    return in_cell(symbol[2:] if byte else visible(symbol), _FONT_SIZE, _CELL)


@functools.lru_cache(maxsize=10_000)
def in_cell(shown: str, size: float, cell: float) -> Glyph:
    """A text in the first font that has it, of at most ``size`` points and ``cell`` inches; □ for what no font has."""
    fonts = _fonts()
    family = next((name for name, font in fonts.items() if all(map(font.get_char_index, map(ord, shown)))), _FONTS[0])
    font = fonts[family]
    text = "".join(c if font.get_char_index(ord(c)) else _BOX for c in shown)
    font.set_size(10, 72)
    width = sum(font.load_char(ord(c)).linearHoriAdvance for c in text) / 65536 / 10  # in ems
    return Glyph(text, family, min(size, cell * 72 / max(width, 0.1)))


@functools.cache
def _fonts() -> dict[str, Any]:
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return {name: font_manager.get_font(font_manager.findfont(name)) for name in _FONTS if name in installed}


# Pale shades of the colours in plots.style; neighbours differ.
_FILLS = ("#BFDDF0", "#F9E0A8", "#BFE5D8", "#F3D3E3")
# In inches: width of a symbol, height of a line, space between levels, left margin.
_WIDE, _HIGH, _SPACE, _MARGIN = 0.105, 0.27, 0.16, 0.65


def segments(segmentation: Segmentation, *, columns: int = 84) -> Figure:
    """The text once per level, every segment a coloured block; ``columns`` characters a line, or tokens as wide."""
    T = len(segmentation)
    longest = max(len(visible(symbol)) for symbol in segmentation.symbols)
    spread = 1 if longest == 1 else longest + 0.5  # cells that a token takes, with a space between two
    columns, cell = max(1, int(columns // spread)), _WIDE * spread
    lines = -(-T // columns)
    levels = range(1, segmentation.levels + 1)
    width = _MARGIN + min(T, columns) * cell + 0.1
    pitch = lines * _HIGH + _SPACE
    with styled():
        from matplotlib.patches import FancyBboxPatch

        figure, axes = new_page(width, len(levels) * pitch, (0, width), (len(levels) * pitch, 0))
        for level in levels:
            top = (level - 1) * pitch + _SPACE / 2
            axes.text(0.05, top + _HIGH / 2, f"level {level}", va="center", fontsize=8, color=GREY)
            for number, (start, end) in enumerate(segmentation.spans(level)):
                for line in range(start // columns, (end - 1) // columns + 1):
                    first, last = max(start, line * columns), min(end, (line + 1) * columns)
                    x, y = _MARGIN + (first - line * columns) * cell, top + line * _HIGH
                    box = FancyBboxPatch(
                        (x + 0.01, y + 0.02), (last - first) * cell - 0.02, _HIGH - 0.04,
                        boxstyle="round,pad=0,rounding_size=0.04", linewidth=0, facecolor=_FILLS[number % len(_FILLS)],
                    )  # fmt: skip
                    axes.add_patch(box)
            for t, symbol in enumerate(segmentation.symbols):
                x, y = _MARGIN + (t % columns + 0.5) * cell, top + (t // columns + 0.5) * _HIGH
                shown = in_cell("" if symbol == " " else visible(symbol), 10, cell)
                axes.text(x, y, shown.text, va="center", ha="center", fontsize=shown.size, family=shown.family)
    return figure
