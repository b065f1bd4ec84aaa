"""A user's text in the symbols of a model: signs written plainly, unknown symbols replaced, positions kept."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np

from hmrnn.nn import checks
from hmrnn.reading.plain import plain
from hmrnn.reading.vocabulary import Vocabulary, code_points, list_symbols, unseen_symbols, utf8

Unknown = Literal["replace", "skip", "refuse"]
_DASHES = "\u2014\u2015"
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_SHOWN = 5  # symbols that a note lists


class Reading(NamedTuple):
    """What a model reads of a text, and which symbol of the text each part comes from."""

    indices: np.ndarray
    """(n,): the symbols that the network reads."""
    symbols: tuple[str, ...]
    """m strings: the symbols of the text itself."""
    counts: np.ndarray
    """(m,): how many of ``indices`` each symbol of the text is read as; their sum is n."""
    notes: tuple[str, ...]
    """Sentences about symbols that were read as others; empty if there are none."""


def read_as(text: str, vocabulary: Vocabulary, unknown: Unknown = "replace", offset: int = 0) -> Reading:
    r"""``text`` in the symbols of ``vocabulary``.

    Characters outside a vocabulary of characters are written plainly where that is possible: without accents, with
    ASCII signs, in lower case. ``unknown`` decides about all others: "replace" reads them as the unknown symbol, or in
    a vocabulary without one as a space; "skip" leaves them out; "refuse" raises InputError. The line ends \r\n and \r
    are read as \n, and a byte order mark is left out, as in files. Messages add ``offset`` to positions.

    Example::

        >>> reading = read_as("“so…” ☃", Vocabulary("characters", tuple(' ".os')))
        >>> reading.counts.tolist()
        [1, 1, 1, 3, 1, 1, 1]
        >>> print(*reading.notes, sep="\n")
        3 symbols written plainly: '“' as '"', '…' as '...', '”' as '"'
        1 symbol that training never showed, read as a space: '☃' (U+2603) at position 6
    """
    checks.one_of("unknown", unknown, get_args(Unknown))
    codes = code_points(text) if vocabulary.kind == "characters" else np.frombuffer(utf8(text), np.uint8)
    known = vocabulary.knows(codes)
    if vocabulary.kind == "characters":
        symbols = list(text)
        written = _plainly(symbols, known, vocabulary)
    else:
        symbols = [chr(code) if code < 128 else f"\\x{code:02x}" for code in codes.tolist()]
        written = {}
    missing = np.array([k for k in np.flatnonzero(~known).tolist() if k not in written], np.int64)
    notes = [_plain_note((symbols[k], new) for k, new in written.items() if symbols[k] not in (_BOM, "\r"))]
    space = ord(" ") in vocabulary.values
    if missing.size:
        new, first = np.unique(codes[missing], return_index=True)
        if unknown == "refuse":
            advice = "remove them, or let them be replaced or skipped"
            raise unseen_symbols(vocabulary.kind, new, missing[first] + offset, advice)
        how = "left out" if unknown == "skip" or not (vocabulary.unknown or space) else "read as a space"
        how = "read as the unknown symbol" if how != "left out" and vocabulary.unknown else how
        count = "1 symbol" if len(missing) == 1 else f"{len(missing)} symbols"
        listed = list_symbols(vocabulary.kind, new, missing[first] + offset, _SHOWN)
        most = "; that is most of the text: train a model on text like it" if 2 * len(missing) > len(codes) else ""
        notes.append(f"{count} that training never showed, {how}: {listed}{most}")
        if how == "left out":
            written |= dict.fromkeys(missing.tolist(), "")
        elif how == "read as a space":
            codes = codes.copy()
            codes[missing] = ord(" ")
    counts = np.ones(len(codes), np.int64)
    parts, done = [], 0
    for k in sorted(written):
        parts += [codes[done:k], code_points(written[k]).astype(codes.dtype)]
        counts[k], done = len(written[k]), k + 1
    indices = vocabulary.index(np.concatenate([*parts, codes[done:]]), "replace")
    return Reading(indices, tuple(symbols), counts, tuple(filter(None, notes)))


def _plainly(symbols: list[str], known: np.ndarray, vocabulary: Vocabulary) -> dict[int, str]:
    """Positions of characters that are read as others, with these: line ends, a byte order mark, unknown signs."""
    special = set(np.flatnonzero(~known).tolist()) | {k for k, symbol in enumerate(symbols) if symbol == "\r"}
    special |= {0} if symbols[:1] == [_BOM] else set()
    letters = set(vocabulary.symbols)
    found = {}
    for k in sorted(special):
        symbol, after = symbols[k], symbols[k + 1 : k + 2]
        if symbol == "\r":
            choices = ["" if after == ["\n"] else "\n"]
        elif unicodedata.combining(symbol) or unicodedata.category(symbol) == "Cf":  # accents, invisible marks
            choices = [""]
        else:
            new = plain(symbol)
            if symbol in _DASHES:
                new = " " * (symbols[k - 1 : k] != [" "]) + "-" + " " * (after != [" "])
            choices = [each for each in (new, new.lower(), new.strip()) if each]
        usable = [each for each in choices if letters.issuperset(each)]
        if usable:
            found[k] = usable[0]
    return found


def _plain_note(written: Iterable[tuple[str, str]]) -> str:
    """The note about characters that were written plainly; empty if there are none."""
    every = list(written)
    distinct = list(dict.fromkeys(every))
    shown = ", ".join(f"{symbol!r} as {new!r}" if new else f"{symbol!r} left out" for symbol, new in distinct[:_SHOWN])
    more = f" and {len(distinct) - _SHOWN} more" if len(distinct) > _SHOWN else ""
    return f"{len(every)} symbol{'s' * (len(every) > 1)} written plainly: {shown}{more}" if every else ""
