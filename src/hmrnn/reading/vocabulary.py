"""The vocabulary of a model, text to indices and back; and how a user's text is read in its symbols."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from hmrnn.analysis.render import UNKNOWN
from hmrnn.errors import InputError
from hmrnn.kind import Spec
from hmrnn.reading.plain import plain

Kind = Literal["characters", "bytes"]
Unseen = Literal["error", "replace"]
Unknown = Literal["replace", "skip", "refuse"]
Character = Annotated[str, Meta(min_length=1, max_length=1)]
Byte = Annotated[int, Meta(ge=0, le=255)]
SURROGATES = {*range(0xD800, 0xE000)}
LEVELS = (" \n", "\n")
"""The symbols that end a segment of each level: words, then lines."""
_DASHES = "\u2014\u2015"
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_SHOWN = 5  # symbols that a note lists


class Vocabulary(Spec, frozen=True):
    """The symbols of a model, in the order of their indices.

    Args:
        kind: whether a symbol is a character or a byte.
        symbols: one-character strings, or byte values, in ascending order.
        unknown: whether there is one more symbol, the last, for all other characters or bytes; shown as U+FFFD.

    Example::

        >>> vocabulary = Vocabulary("characters", ("a", "b"), unknown=True)
        >>> vocabulary.encode("abc", unseen="replace")
        array([0, 1, 2], dtype=uint8)
        >>> vocabulary.decode([0, 1, 2])
        'ab�'
    """

    kind: Kind
    symbols: Annotated[tuple[Character | Byte, ...], Meta(min_length=1)]
    unknown: bool = False

    def __post_init__(self) -> None:
        right = str if self.kind == "characters" else int
        if (
            not all(type(symbol) is right for symbol in self.symbols)
            or any(a >= b for a, b in itertools.pairwise(self.values))
            or SURROGATES & {*self.values}
            or (right is int and not {*self.symbols} <= {*range(256)})
        ):
            what = "single characters" if self.kind == "characters" else "integers from 0 to 255"
            raise InputError(f"the symbols of this vocabulary must be distinct {what} in ascending order")

    def __len__(self) -> int:
        return len(self.symbols) + self.unknown

    @staticmethod
    def of_codes(kind: Kind, codes: Iterable[int], unknown: bool = False) -> Vocabulary:
        """The vocabulary of code points or byte values in ascending order."""
        symbols = tuple(map(chr, codes)) if kind == "characters" else tuple(map(int, codes))
        return Vocabulary(kind, symbols, unknown)

    @property
    def unit(self) -> str:
        """The name of one symbol: "character" or "byte"."""
        return {"characters": "character", "bytes": "byte"}[self.kind]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest integer type that holds every index."""
        return np.min_scalar_type(len(self) - 1)

    def encode(self, text: str | bytes, unseen: Unseen = "error") -> np.ndarray:
        """The indices of the symbols of ``text``; a vocabulary of bytes encodes a str as UTF-8.

        Bytes that are not UTF-8 may be in the str as surrogates (``surrogateescape``). ``unseen`` decides about symbols
        outside the vocabulary: InputError, or the unknown symbol if there is one.
        """
        if self.kind == "bytes":
            codes = np.frombuffer(utf8(text) if isinstance(text, str) else text, np.uint8)
        elif isinstance(text, str):
            codes = code_points(text)
        else:
            raise InputError("this vocabulary holds characters, so it encodes a str; got bytes: decode them first")
        return self.index(codes, unseen)

    def index(self, codes: np.ndarray, unseen: Unseen = "error", offset: int = 0) -> np.ndarray:
        """``encode`` for code points or byte values; ``offset`` is added to the positions in an error."""
        indices = self._table[codes]
        missing = np.flatnonzero(indices < 0)
        if missing.size and (unseen == "error" or not self.unknown):
            new, first = np.unique(codes[missing], return_index=True)
            advice = (
                "or replace them by the unknown symbol" if self.unknown else "as there is no unknown symbol for them"
            )
            if self.kind == "characters" and set(plain("".join(map(chr, new)))) <= set(self.symbols):
                advice += "; in plain ASCII all of them are known (--plain, hmrnn.reading.plain.plain)"
            raise unseen_symbols(self.kind, new, missing[first] + offset, f"remove them, {advice}")
        indices[missing] = len(self.symbols)
        return indices.astype(self.dtype)

    def knows(self, codes: np.ndarray) -> np.ndarray:
        """Whether each of these code points or byte values is in the vocabulary."""
        return self._table[codes] >= 0

    def decode(self, indices: Sequence[int] | np.ndarray) -> str:
        """The text of these indices; bytes that are not UTF-8 are shown as U+FFFD."""
        codes = self._codes[self._checked(indices)]
        if self.kind == "characters":
            return codes.astype("<u4").tobytes().decode("utf-32-le")
        return codes.astype(np.uint8).tobytes().decode("utf-8", "replace")

    def pieces(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        r"""One string per symbol, for display; a byte that is not ASCII becomes ``\xe2``."""
        return [self._pieces[i] for i in self._checked(indices).tolist()]

    def boundaries(self, levels: int) -> np.ndarray:
        """(symbols, levels) float32: 1 where a symbol ends a segment of a level, else 0; NaN where text does not say.

        A word ends with the space or line end after it, a line with its line end. NaN is the value of all levels beyond
        these two, and of a level none of whose symbols is in the vocabulary.
        """
        pieces = self.pieces(range(len(self)))
        table = np.full((len(self), levels), math.nan, np.float32)
        for level, ends in enumerate(LEVELS[:levels]):
            if any(symbol in ends for symbol in pieces):
                table[:, level] = [symbol in ends for symbol in pieces]
        if levels > 0 and np.isnan(table).all():
            raise InputError(
                "takes the spaces and line ends of a text for boundaries, and this vocabulary has neither; use "
                "hm-lstm, which finds its own",
                setting="model.rnn",
                value="hrnn",
            )
        return table

    def describe(self) -> str:
        """What the model reads, for people."""
        return f"text, {len(self)} {self.kind}"

    def _checked(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        array = np.asarray(indices, dtype=np.int64)
        if array.size and not 0 <= array.min() <= array.max() < len(self):
            raise InputError(
                f"the indices of this vocabulary go from 0 to {len(self) - 1}; got {array.min()} to {array.max()}"
            )
        return array

    @functools.cached_property
    def values(self) -> tuple[int, ...]:
        """Code points or byte values, without the unknown symbol."""
        return tuple(s if isinstance(s, int) else ord(s) for s in self.symbols)

    @functools.cached_property
    def _codes(self) -> np.ndarray:
        """The code of each index; the unknown symbol is U+FFFD, or the byte 0xff, which decodes to U+FFFD."""
        unknown = (ord(UNKNOWN) if self.kind == "characters" else 0xFF,) if self.unknown else ()
        return np.array(self.values + unknown, np.uint32)

    @functools.cached_property
    def _table(self) -> np.ndarray:
        """The index of every code point or byte value; -1 if it is not in the vocabulary."""
        table = np.full(256 if self.kind == "bytes" else sys.maxunicode + 1, -1, np.int32)
        table[list(self.values)] = np.arange(len(self.values))
        return table

    @functools.cached_property
    def _pieces(self) -> tuple[str, ...]:
        shown = tuple(chr(v) if self.kind == "characters" or v < 128 else f"\\x{v:02x}" for v in self.values)
        return shown + ((UNKNOWN,) if self.unknown else ())


def utf8(text: str) -> bytes:
    """UTF-8; lone surrogates become the bytes they stand for, or else are encoded as they are."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def code_points(text: str) -> np.ndarray:
    """The code points of ``text``, surrogates included."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def unseen_symbols(kind: Kind, codes: np.ndarray, positions: np.ndarray, advice: str) -> InputError:
    """The error about symbols outside the vocabulary, with the first ``positions`` of up to five of them."""
    symbols = "1 symbol" if len(codes) == 1 else f"{len(codes)} symbols"
    return InputError(
        f"the text holds {symbols} that training never showed: {list_symbols(kind, codes, positions)}; {advice}"
    )


def list_symbols(kind: Kind, codes: np.ndarray, positions: np.ndarray, most: int = 5) -> str:
    """Up to ``most`` symbols with their codes and positions, for messages."""
    listed = ", ".join(
        (f"{chr(code)!r} (U+{code:04X})" if kind == "characters" else f"byte 0x{code:02x}") + f" at position {position}"
        for position, code in sorted(zip(positions.tolist(), codes.tolist()))[:most]
    )
    return listed + (f" and {len(codes) - most} more" if len(codes) > most else "")


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
    if unknown not in get_args(Unknown):
        raise InputError(f"must be one of {', '.join(get_args(Unknown))}", setting="unknown", value=repr(unknown))
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
