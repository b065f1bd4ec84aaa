"""Where words may be cut by the kind of their symbols: never within a character as a reader sees it."""

from __future__ import annotations

import unicodedata

import numpy as np

from hmrnn.analysis.render import LINE_ENDS
from hmrnn.errors import InputError
from hmrnn.reading.vocabulary import Vocabulary

MOST = 16_000
"""Distinct symbols of a text; the rules take their square in bytes."""
_STOPS = frozenset(
    ",;!?\u037e\u060c\u061b\u061f\u0964\u0965\u104a\u104b\u1362\u3001\u3002\uff01\uff0c\uff1b\uff1f\uff61\uff64"
)
"""Signs that end a word or a sentence; what follows them is another word, or another sign."""
_JOINERS = frozenset("\u200c\u200d\u2060")
_NAMED = ("LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "THAI", "HANGUL", "DEVANAGARI")


def rules(vocabulary: Vocabulary) -> np.ndarray:
    """(symbols, symbols) int8: 1 if two symbols in a row must be cut apart, -1 if they must not be, else 0.

    Never cut: before a mark, a joiner or a continuation byte of UTF-8, after a joiner, and between two digits.
    Always cut: at line ends, after a sign such as a comma unless another sign or a digit follows, and between letters
    of different scripts (Chinese characters and the Japanese syllabaries go together).
    """
    if len(vocabulary) > MOST:
        raise InputError(
            f"the text has {len(vocabulary):,} distinct symbols, and words are found among at most {MOST:,}: "
            "hmrnn train words FILE --data.min-count 5 reads those as one that occur less often",
            setting="data.min_count",
        )
    pieces = vocabulary.pieces(np.arange(len(vocabulary)))
    kinds = np.array([_kind(piece, vocabulary) for piece in pieces])
    scripts = np.array([_script(piece) for piece in pieces])
    letter = kinds == "letter"
    table = np.zeros((len(pieces),) * 2, np.int8)
    table[letter[:, None] & letter & (scripts[:, None] != scripts)] = 1
    table[(kinds == "stop")[:, None] & letter] = 1
    table[(kinds == "digit")[:, None] & (kinds == "digit")] = -1
    table[:, kinds == "mark"] = -1
    table[kinds == "joiner"] = -1
    table[:, kinds == "joiner"] = -1
    table[kinds == "line"] = 1
    table[:, kinds == "line"] = 1
    return table


def separators(vocabulary: Vocabulary) -> np.ndarray:
    """The indices of the line ends."""
    pieces = vocabulary.pieces(np.arange(len(vocabulary)))
    return np.flatnonzero([_kind(piece, vocabulary) == "line" for piece in pieces])


def _kind(piece: str, vocabulary: Vocabulary) -> str:
    if len(piece) > 1:  # a byte that is not ASCII, shown as \xe2
        return "mark" if vocabulary.kind == "bytes" and 0x80 <= int(piece[2:], 16) < 0xC0 else "other"
    if piece in LINE_ENDS:
        return "line"
    if piece in _JOINERS:
        return "joiner"
    category = unicodedata.category(piece)
    if piece in _STOPS:
        return "stop"
    return {"M": "mark", "L": "letter"}.get(category[0]) or ("digit" if category == "Nd" else "other")


def _script(piece: str) -> str:
    """The script of a letter, by its Unicode name; one name for all that are not told apart."""
    name = unicodedata.name(piece[0], "")
    found = [script for script in _NAMED if name.startswith((script, f"FULLWIDTH {script}"))]
    east = name.startswith(("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "IDEOGRAPHIC"))
    return found[0] if found else "east" if east else "other"
