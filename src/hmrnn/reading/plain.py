"""Text converted to plain ASCII where there is an equivalent; the model english-small reads such text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

_LONGEST = 1 << 16  # characters without an ASCII letter or digit that are held back for the next block
_DASH = re.compile(" ?[\u2014\u2015] ?")
_SIGNS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u2032": "'", "\u00b4": "'", "\u2039": "'", "\u203a": "'",
     "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
     "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u2026": "...", "\u2044": "/",
     "\u00d7": "x", "\u00df": "ss", "\u00e6": "ae", "\u00c6": "Ae", "\u0153": "oe", "\u0152": "Oe", "\u00f8": "o",
     "\u00d8": "O", "\u0142": "l", "\u0141": "L", "\u0111": "d", "\u0110": "D", "\u0131": "i", "\t": " "}
)  # fmt: skip


def plain(text: str) -> str:
    """``text`` without accents and with ASCII signs; characters without an equivalent are kept.

    Example::

        >>> plain("“Crème brûlée” — that’s £3…")
        '"Creme brulee" - that\\'s £3...'
    """
    parts = unicodedata.normalize("NFKD", text.translate(_SIGNS))
    letters = "".join(part for part in parts if not unicodedata.combining(part))
    return _DASH.sub(" - ", letters).translate(_SIGNS)


def plain_blocks(blocks: Iterable[str]) -> Iterator[str]:
    """:func:`plain` for a text in blocks.

    The conversion of a dash at the end of a block depends on the next one, so each block is cut before its last ASCII
    letter or digit: no rule reaches across it.
    """
    held = ""
    for block in blocks:
        text = held + block
        cut = next((k for k in range(len(text) - 1, -1, -1) if text[k].isascii() and text[k].isalnum()), 0)
        cut = cut if len(text) - cut <= _LONGEST else len(text)
        held = text[cut:]
        yield plain(text[:cut])
    yield plain(held)
