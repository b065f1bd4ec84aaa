"""Segmentation -> the paper's figures 3 and 4; metrics of a run -> its training curves.

Only this module, figures_strokes and figures_lengths import matplotlib, and only when a figure is drawn. Figures are
plain ``Figure`` objects, so no window system is touched and nothing is kept alive by pyplot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hmrnn.analysis.render import visible
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.utils import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
MAX_HEIGHT = 100  # inches: some hundred rows

# Lengths in inches. A full row of 90 symbols is as wide as the text of a page.
_CELL = 0.0744
_TEXT, _LINE, _BLOCK, _GAP = 0.165, 0.13, 0.11, 0.14  # heights: text, line of blocks, block, space between two rows
_LEFT, _RIGHT, _TOP, _FOOT = 0.42, 0.08, 0.06, 0.2
_BARS, _BAR_LINE = 3, 0.17  # colour bars beside each other, and the height of a line of them
_FONT_SIZE = 8.5  # points: a monospaced symbol just fills its cell
_SMALL = 7.0
_GREY = "#767676"

# Tried in this order for a symbol; the first two come with matplotlib, the others are there on many systems.
_FONTS = ("DejaVu Sans Mono", "DejaVu Sans", "Noto Sans Mono CJK SC", "Noto Sans CJK SC", "Noto Sans CJK JP",
          "WenQuanYi Micro Hei", "MS Gothic", "Arial Unicode MS")  # fmt: skip
_BOX = "□"

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
# Okabe and Ito's colours, which colour-blind eyes can tell apart
_ORANGE, _BLUE, _RED, _GREEN, _PINK = "#E69F00", "#0072B2", "#D55E00", "#009E73", "#CC79A7"


class Glyph(NamedTuple):
    """How a symbol is drawn in its cell."""

    text: str
    family: str
    size: float
    """In points; small enough for the cell."""


def styled() -> AbstractContextManager[None]:
    """Within it, figures have the fonts and lines of this package."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """A white sheet, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white", **options)


def figure3(segmentation: Segmentation, *, columns: int = 90) -> Figure:
    """Figure 3 of the paper: rows of text, under each symbol a block per detector, white where a segment ends."""
    with styled():
        page = _Page(segmentation, columns, lines=segmentation.levels, least_cells=30, foot=0)
        page.draw_text()
        page.draw_boundaries()
    return page.figure


def figure4(segmentation: Segmentation, *, columns: int = 90) -> Figure:
    """Figure 4 of the paper: as figure 3, and under it a heat map of the norm of each layer's h.

    Each layer has its own scale, given at the foot; what a layer copies keeps its colour.
    """
    layers = segmentation.norms.shape[1]
    lines, bar_lines = segmentation.levels + layers, math.ceil(layers / _BARS)
    with styled():
        page = _Page(segmentation, columns, lines, least_cells=22 * min(layers, _BARS), foot=bar_lines * _BAR_LINE)
        page.draw_text()
        page.draw_boundaries()
        page.draw_norms()
    return page.figure


class _Page:
    """Rows of symbols with lines of cells under them. x counts cells, y inches from the top."""

    def __init__(self, segmentation: Segmentation, columns: int, lines: int, least_cells: int, foot: float) -> None:
        if columns < 1:
            raise InputError(f"columns must be at least 1; got {columns}")
        T = len(segmentation)
        self.segmentation = segmentation
        self.rows = [range(start, min(start + columns, T)) for start in range(0, T, columns)]
        self.pitch = _TEXT + lines * _LINE + _GAP
        self.body = _TOP + len(self.rows) * self.pitch
        self.cells = max(min(columns, T), least_cells)
        self.width = _LEFT + self.cells * _CELL + _RIGHT
        self.height = self.body + _FOOT + foot
        if self.height > MAX_HEIGHT:
            raise InputError(
                f"a figure of {T} symbols would be {self.height:.0f} inches high, and {MAX_HEIGHT} is the limit: "
                "draw a part, such as segmentation[:270]"
            )
        self.figure = new_figure(self.width, self.height)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(-_LEFT / _CELL, self.cells + _RIGHT / _CELL)
        self.axes.set_ylim(self.height, 0)

    def draw_text(self) -> None:
        for row, middle in self._each_line(-1):
            self._label(str(row[0] + 1), middle, color=_GREY, fontsize=_SMALL - 1)
            for column, t in enumerate(row):
                glyph = fit(self.segmentation.symbols[t])
                if glyph.text.strip():
                    self.axes.text(
                        column + 0.5, middle, glyph.text, family=[glyph.family, "monospace"], fontsize=glyph.size,
                        ha="center", va="center_baseline", color="black", parse_math=False, gid=f"symbol-{t}",
                    )  # fmt: skip

    def draw_boundaries(self) -> None:
        for l in range(self.segmentation.levels):
            style = {"cmap": "gray", "vmin": 0, "vmax": 1, "edgecolors": _GREY}
            self._line(l, self.segmentation.boundaries[:, l], f"z{l + 1}", f"z{superscript(l + 1)}", **style)
        if self.segmentation.levels:
            self._legend(self.body + _FOOT / 2 - 0.04)

    def draw_norms(self) -> None:
        norms, levels = self.segmentation.norms, self.segmentation.levels
        for l in range(norms.shape[1]):
            low, high = _limits(norms[:, l])
            label, style = f"‖h{superscript(l + 1)}‖", {"cmap": "viridis", "vmin": low, "vmax": high}
            mesh = self._line(levels + l, norms[:, l], f"h{l + 1}", label, edgecolors="face", **style)
            self._colour_bar(l, min(norms.shape[1], _BARS), label, mesh)

    def _each_line(self, line: int) -> Iterator[tuple[range, float]]:
        """The symbols of each row, and the middle of its ``line``-th line of cells; -1 is the text."""
        for k, row in enumerate(self.rows):
            top = _TOP + k * self.pitch
            yield row, top + (_TEXT / 2 if line < 0 else _TEXT + (line + 0.5) * _LINE)

    def _line(self, line: int, values: np.ndarray, name: str, label: str, **style: Any) -> QuadMesh:
        for row, middle in self._each_line(line):
            self._label(label, middle, fontsize=_SMALL)
            top, bottom = middle - _BLOCK / 2, middle + _BLOCK / 2
            here = values[row.start : row.stop][None]  # (1, symbols of the row)
            mesh = self.axes.pcolormesh(
                np.arange(len(row) + 1), [top, bottom], here, linewidth=0.3, gid=f"{name}-{row.start}", **style
            )
        return mesh

    def _label(self, text: str, middle: float, **style: Any) -> None:
        self.axes.text(-0.8, middle, text, ha="right", va="center_baseline", **style)

    def _legend(self, middle: float) -> None:
        """What white and black mean, below the last row."""
        side = 0.085
        for x, colour, text in ((0.0, "white", "boundary"), (13.0, "black", "no boundary")):
            right, top, bottom = x + side / _CELL, middle - side / 2, middle + side / 2
            self.axes.fill(
                [x, right, right, x], [top, top, bottom, bottom], facecolor=colour, edgecolor=_GREY, linewidth=0.5
            )
            self.axes.text(right + 0.6, middle, text, va="center_baseline", fontsize=_SMALL)

    def _colour_bar(self, l: int, beside: int, label: str, mesh: QuadMesh) -> None:
        """At the foot: the label, the lowest value, the bar, the highest value."""
        pitch, middle = self.cells / beside, self.body + _FOOT + (l // beside + 0.5) * _BAR_LINE
        x, length, thickness = l % beside * pitch, pitch - 13, 0.08
        low, high = mesh.get_clim()
        for at, text, side in ((0, label, "left"), (7.5, f"{low:.2f}", "right"), (8.5 + length, f"{high:.2f}", "left")):
            self.axes.text(x + at, middle, text, ha=side, va="center_baseline", fontsize=_SMALL)
        left, bottom = _LEFT + (x + 8) * _CELL, self.height - middle - thickness / 2
        box = (left / self.width, bottom / self.height, length * _CELL / self.width, thickness / self.height)
        bar = self.figure.colorbar(mesh, cax=self.figure.add_axes(box), orientation="horizontal", ticks=[])
        bar.outline.set_visible(False)


@functools.lru_cache(maxsize=10_000)
def fit(symbol: str) -> Glyph:
    """The symbol in a font that has it, as large as its cell allows; □ for what no font has."""
    shown = symbol[2:] if len(symbol) == 4 and symbol.startswith("\\x") else visible(symbol)  # a byte: its two digits
    fonts = _fonts()
    family = next((name for name, font in fonts.items() if all(map(font.get_char_index, map(ord, shown)))), _FONTS[0])
    font = fonts[family]
    text = "".join(c if font.get_char_index(ord(c)) else _BOX for c in shown)
    font.set_size(10, 72)
    width = sum(font.load_char(ord(c)).linearHoriAdvance for c in text) / 65536 / 10  # in ems
    return Glyph(text, family, min(_FONT_SIZE, _CELL * 72 / max(width, 0.1)))


@functools.cache
def _fonts() -> dict[str, Any]:
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return {name: font_manager.get_font(font_manager.findfont(name)) for name in _FONTS if name in installed}


def superscript(number: int) -> str:
    """Its digits, raised."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _limits(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return (low, high) if high > low else (low, low + 1)


def curves(metrics: Sequence[dict[str, Any]]) -> Figure:
    """Bits per symbol (nats per sequence of strokes) and, below, how often each detector fires, over a run's updates.

    ``metrics`` are the records of metrics.jsonl; those of the events "train" and "valid" are drawn.
    """
    train = [record for record in metrics if record.get("event") == "train"]
    valid = [record for record in metrics if record.get("event") == "valid"]
    if not train and not valid:
        raise InputError("there is nothing to draw: the metrics hold no record of training or validation")
    with styled():
        return _curves(train, valid)


def _curves(train: list[dict[str, Any]], valid: list[dict[str, Any]]) -> Figure:
    levels = len((train or valid)[0]["rates"])
    unit = "nats" if "nats" in (train or valid)[0] else "bits"
    style: dict[str, Any]
    figure = new_figure(6.4, 4.6 if levels else 3.0, layout="constrained")
    panels = figure.subplots(
        2 if levels else 1, 1, sharex=True, squeeze=False, height_ratios=[3, 2][: 1 + bool(levels)]
    )

    top: Axes = panels[0, 0]
    if train:
        top.plot(_steps(train), _measures(train, unit), color=_ORANGE, linewidth=1, label="training")
    if valid:
        best = min(filter(math.isfinite, _measures(valid, unit)), default=math.nan)
        top.axhline(best, color=_BLUE, linewidth=0.6, linestyle=":")
        style = {"color": _BLUE, "linewidth": 1.5, "marker": "o", "markersize": 3.5}
        top.plot(
            _steps(valid),
            _measures(valid, unit),
            label=f"validation (best {best:{'.1f' if unit == 'nats' else '.3f'}})",
            **style,
        )
    top.set_ylim(*_measure_range(_measures(train, unit), _measures(valid, unit)))
    top.set_ylabel({"bits": "bits per symbol", "nats": "nats per sequence"}[unit])
    top.legend(frameon=False)

    if levels:
        bottom: Axes = panels[1, 0]
        for l in range(levels):
            style = {"color": (_GREEN, _PINK, _RED, _ORANGE, _BLUE)[l % 5], "linewidth": 1.2, "markersize": 3.5}
            label = f"z{superscript(l + 1)}"
            bottom.plot(_steps(train), [r["rates"][l] for r in train], label=label, **style)
            bottom.plot(_steps(valid), [r["rates"][l] for r in valid], marker="o", linestyle="none", **style)
        bottom.set_ylim(bottom=0)
        bottom.set_ylabel("boundary rate")
        bottom.legend(frameon=False, ncols=levels)
    panels[-1, 0].set_xlabel("updates")
    panels[-1, 0].margins(x=0.02)
    for axes in panels[:, 0]:
        axes.grid(axis="y", color="#e0e0e0", linewidth=0.5)
        axes.set_axisbelow(True)
    return figure


def _steps(records: Sequence[dict[str, Any]]) -> list[int]:
    return [record["step"] for record in records]


def _measures(records: Sequence[dict[str, Any]], unit: str) -> list[float]:
    return [math.nan if record[unit] is None else record[unit] for record in records]  # JSON has no NaN


def _measure_range(train: list[float], valid: list[float]) -> tuple[float, float]:
    """Where the curves can be told apart: the steep start of training may leave the picture at the top."""
    values = [value for value in train + valid if math.isfinite(value)] or [0.0]
    low = min(values)
    high = max([float(np.quantile(values, 0.95)), *(value for value in valid if math.isfinite(value))])
    margin = 0.12 * (high - low) or 0.1
    return low - margin, high + margin


def bars(groups: dict[str, dict[str, float]], label: str) -> Figure:
    """One panel of horizontal bars per group, 1 marked: for ratios."""
    with styled():
        figure = new_figure(6.4, 0.5 + sum(0.5 + 0.24 * len(group) for group in groups.values()), layout="constrained")
        heights = [2 + len(group) for group in groups.values()]
        panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, group) in zip(panels, groups.items()):
            names = list(group)
            colours = [_GREY if names[k].startswith("nn.") else _BLUE for k in range(len(names))]
            drawn = axes.barh(names, list(group.values()), color=colours, height=0.7)
            axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=_SMALL)
            axes.axvline(1, color="black", linewidth=0.6, linestyle=":")
            axes.invert_yaxis()
            axes.margins(x=0.12)
            axes.set_title(name, fontsize=_SMALL, loc="left")
        panels[-1].set_xlabel(label)
        return figure


def check_suffix(path: str | Path) -> str:
    """The kind of file that the path names, one of ``FORMATS``."""
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise InputError(
            f"a figure is written as {', '.join(FORMATS)}; got {Path(path).name!r}: change the end of its name"
        )
    return kind


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG (300 dpi), SVG (its text stays text) or PDF, whole or not at all. Returns the path."""
    path = Path(path)
    kind = check_suffix(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)  # the same figure, the same file
    with files.replacing(path, advice=files.ELSEWHERE) as file, styled():
        figure.savefig(file, format=kind[1:], dpi=300, metadata=metadata)
    return path
