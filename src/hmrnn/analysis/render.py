"""Symbols and segments as text for a terminal and as HTML."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence

COLOURS = ("#87d7ff", "#ffd787")
"""Backgrounds of segments in turn: blue and orange, which colour-blind readers tell apart, light under black text."""
_ANSI = ("\x1b[38;5;16;48;5;117m", "\x1b[38;5;16;48;5;222m")  # the same two of the 256 colours, with black text
_ANSI_RESET = "\x1b[0m"
_SIGNS = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_JOINERS = "\u200c\u200d"  # invisible, but parts of words and emoji
_STYLE = "white-space: pre-wrap; overflow-wrap: anywhere; font-family: monospace; line-height: 1.5"


def visible(symbol: str) -> str:
    """``symbol`` in characters to print on one line: ⏎ for a line feed, ⇥ for a tab, � for what has no sign."""
    return symbol if symbol.isprintable() else "".join(map(_visible, symbol))


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character.isspace() and character != "\t" and character not in LINE_ENDS:
        return "␣"  # a space other than U+0020
    code = ord(character)
    return _SIGNS.get(character) or (chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}")


def characters(symbols: Sequence[str]) -> list[str]:
    """``symbols`` with the bytes that make a character of UTF-8 replaced by it; other bytes stay escapes."""
    made: list[str] = []
    for is_byte, run in itertools.groupby(symbols, _is_byte):
        if is_byte:
            text = bytes(int(symbol[2:], 16) for symbol in run).decode("utf-8", "surrogateescape")
            made += [f"\\x{ord(each) - 0xDC00:02x}" if "\udc80" <= each <= "\udcff" else each for each in text]
        else:
            made += run
    return made


def _is_byte(symbol: str) -> bool:
    """Whether a symbol is the escape of a byte that is not ASCII, as models of bytes have it."""
    return len(symbol) == 4 and symbol.startswith("\\x") and symbol[2] in "89abcdef" and symbol[3] in "0123456789abcdef"


def joined(symbols: Sequence[str]) -> str:
    """``symbols`` as one string, with the characters that bytes make."""
    text = "".join(symbols)
    return "".join(characters(symbols)) if "\\x" in text else text


def _whole_characters(symbols: Sequence[str], ends: Sequence[int]) -> tuple[list[str], list[int]]:
    """Symbols and ends with characters in place of their bytes, where no segment ends between these."""
    if not any(map(_is_byte, symbols)):
        return list(symbols), list(ends)
    parts = [characters(symbols[start:end]) for start, end in spans(ends or [len(symbols)])]
    return [*itertools.chain(*parts)], [*itertools.accumulate(map(len, parts))] if ends else []


def spans(ends: Sequence[int]) -> list[tuple[int, int]]:
    """The start and end of each segment, from the sorted ends."""
    return list(zip([0, *ends[:-1]], ends))


def plain(symbols: Sequence[str], ends: Sequence[int], width: int) -> list[str]:
    """Lines of text with ``|`` between segments, ``·`` for a space at the edge of one and ``¦`` for a ``|``.

    Without ends these signs are not needed, and the text stays as it is.
    """
    symbols, ends = _whole_characters(symbols, ends)
    shown = [visible(symbol) for symbol in symbols]
    if ends:
        shown = [symbol.replace("|", "¦") for symbol in shown]
    for start, end in spans(ends):
        for edge in (start, end - 1):
            shown[edge] = "·" if shown[edge] == " " else shown[edge]
    for end in ends[:-1]:
        shown[end - 1] += "|"
    return ["".join(line) for line in wrap(shown, width)]


def coloured(symbols: Sequence[str], ends: Sequence[int], width: int) -> list[str]:
    """Lines of text with ANSI codes: segments have two backgrounds in turn."""
    symbols, ends = _whole_characters(symbols, ends)
    lines: list[str] = []
    t = segment = 0
    for line in wrap([visible(symbol) for symbol in symbols], width):
        made, before = "", None
        for symbol in line:
            segment += t >= ends[segment]
            made += symbol if segment == before else _ANSI[segment % 2] + symbol
            before = segment
            t += 1
        lines.append(made + _ANSI_RESET)
    return lines


def as_html(symbols: Sequence[str], ends: Sequence[int]) -> str:
    """A div of text: segments have two backgrounds in turn; without ends there is no background."""
    symbols, ends = _whole_characters(symbols, ends)
    parts = [
        f'<span style="color: #000; background: {COLOURS[k % 2]}">{_escaped(symbols[start:end])}</span>'
        for k, (start, end) in enumerate(spans(ends))
    ]
    return f'<div style="{_STYLE}">{"".join(parts) or _escaped(symbols)}</div>'


def _escaped(symbols: Sequence[str]) -> str:
    return html.escape("".join(visible(symbol) + "\n" * symbol.endswith("\n") for symbol in symbols))


def wrap(shown: Sequence[str], width: int) -> list[list[str]]:
    """Lines of at most ``width`` columns: broken after ⏎, else after a space, else between any two symbols."""
    from rich.cells import cell_len

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
