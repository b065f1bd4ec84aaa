"""The segments of every level as coloured blocks around the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hmrnn.analysis.render import visible
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.plots.style import GREY, check_columns, new_page, styled
from hmrnn.plots.text import in_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pale shades of the colours in plots.style; neighbours differ.
_FILLS = ("#BFDDF0", "#F9E0A8", "#BFE5D8", "#F3D3E3")
# In inches: width of a symbol, height of a line, space between levels, left margin.
_CELL, _LINE, _GAP, _LEFT = 0.105, 0.27, 0.16, 0.65


def segments(segmentation: Segmentation, *, columns: int = 84) -> Figure:
    """The text once per level, every segment a coloured block; ``columns`` characters a line, or tokens as wide."""
    check_columns(columns)
    T = len(segmentation)
    longest = max(len(visible(symbol)) for symbol in segmentation.symbols)
    spread = 1 if longest == 1 else longest + 0.5  # cells that a token takes, with a space between two
    columns, cell = max(1, int(columns // spread)), _CELL * spread
    lines = -(-T // columns)
    levels = range(1, segmentation.levels + 1)
    width = _LEFT + min(T, columns) * cell + 0.1
    pitch = lines * _LINE + _GAP
    with styled():
        from matplotlib.patches import FancyBboxPatch

        figure, axes = new_page(width, len(levels) * pitch, (0, width), (len(levels) * pitch, 0))
        for level in levels:
            top = (level - 1) * pitch + _GAP / 2
            axes.text(0.05, top + _LINE / 2, f"level {level}", va="center", fontsize=8, color=GREY)
            for number, (start, end) in enumerate(segmentation.spans(level)):
                for line in range(start // columns, (end - 1) // columns + 1):
                    first, last = max(start, line * columns), min(end, (line + 1) * columns)
                    x, y = _LEFT + (first - line * columns) * cell, top + line * _LINE
                    box = FancyBboxPatch(
                        (x + 0.01, y + 0.02), (last - first) * cell - 0.02, _LINE - 0.04,
                        boxstyle="round,pad=0,rounding_size=0.04", linewidth=0, facecolor=_FILLS[number % len(_FILLS)],
                    )  # fmt: skip
                    axes.add_patch(box)
            for t, symbol in enumerate(segmentation.symbols):
                x, y = _LEFT + (t % columns + 0.5) * cell, top + (t // columns + 0.5) * _LINE
                shown = in_cell("" if symbol == " " else visible(symbol), 10, cell)
                axes.text(x, y, shown.text, va="center", ha="center", fontsize=shown.size, family=shown.family)
    return figure
