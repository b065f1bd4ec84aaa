"""Symbols as they can be shown: one line each, broken at a width, escaped for HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rich.cells import cell_len


def visible(symbol: str) -> str:
    """``symbol`` as it can be shown on one line: ⏎ for a line feed, ⇥ for a tab, a picture for what has none."""
    return symbol if symbol.isprintable() else "".join(map(_visible, symbol))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace() and character not in "\n\t\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return "␣"  # a space other than the usual one
    special = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
    code = ord(character)
    return special.get(character) or (chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}")


def wrap(shown: Sequence[str], width: int) -> list[list[str]]:
    """Lines of at most ``width`` columns: broken after ⏎, else after a space, else anywhere between two symbols."""
    lines: list[list[str]] = []
    line: list[str] = []
    used = 0
    for symbol in shown:
        columns = cell_len(symbol)
        while line and used + columns > width:
            cut = next((i + 1 for i in range(len(line) - 1, -1, -1) if line[i].strip("|") in (" ", "·")), len(line))
            lines.append(line[:cut])
            line = line[cut:]
            used = sum(map(cell_len, line))
        line.append(symbol)
        used += columns
        if symbol.strip("|") == "⏎":
            lines.append(line)
            line, used = [], 0
    return [*lines, line] if line else lines


def as_html(symbols: Sequence[str]) -> str:
    """Symbols as HTML shows them where white space is kept; a line feed also breaks the line."""
    return html.escape("".join(visible(symbol) + "\n" * symbol.endswith("\n") for symbol in symbols))
