"""Segment ends that a model found in a text, scored against its spaces, those that were removed, or those of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmrnn.analysis.render import LINE_ENDS
from hmrnn.analysis.scores import Row, compare, ends_of
from hmrnn.errors import InputError
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils.inputs import decoded, read_bytes

FILE = "as in the file"
BEFORE, AFTER = "before the space", "after the space"
"""Conventions for text: a segment ends with the last letter of a word, or with the space after it."""
REMOVED, LATER = "where a space was", "one symbol later"
"""Conventions for removed spaces: without them, only the first symbol of the next word shows that a word has ended."""


class Found(NamedTuple):
    """What a network found in a text of T symbols."""

    boundaries: np.ndarray
    """(T, levels) bool: whether a segment of the level ends after the symbol; False for the last symbol."""
    surprise: np.ndarray
    """(T,) float32: bits of each symbol given those before it; NaN for the first."""
    expected: np.ndarray
    """(T,) float32: entropy of the prediction of each symbol, in bits; NaN for the first."""
    words: np.ndarray | None = None
    """(T,) bool: whether a word of the segmental head ends after the symbol; None if the model has no such head."""


def read_ends(path: str | Path, length: int) -> np.ndarray:
    """Gold ends from a file: one whole number per line, from 1 to ``length``, in any order.

    Empty lines and comments after # are skipped.
    """
    text = decoded(read_bytes(str(path)), str(path))
    ends = []
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        if not content.isdecimal() or len(content) > 18 or not 1 <= int(content) <= length:
            raise InputError(
                f"{path}, line {number}: an end must be a whole number from 1 to {length}, the length of the text; "
                f"got {content[:40]!r}"
            )
        ends.append(int(content))
    if not ends:
        raise InputError(f"{path} must hold gold ends, one per line; got no end")
    return np.unique(ends)


def against_white_space(found: Found, symbols: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Scores against the spaces and line ends of the text; several in a row are one gold end."""
    white = _are(vocabulary, str.isspace)[symbols]
    if not white.any() or white.all():
        raise InputError("the text has no words between spaces or line ends to compare with; give a file of gold ends")
    gold = {BEFORE: np.flatnonzero(white[1:] & ~white[:-1]) + 1, AFTER: np.flatnonzero(~white[1:] & white[:-1]) + 1}
    return against(found, {name: [ends] for name, ends in gold.items()}, [slice(len(symbols))])


def against_removed_spaces(found: Found, symbols: np.ndarray, spaces: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Scores against the places where spaces were removed (``spaces``, (T,)). Every line is a sequence of its own."""
    line_end = _are(vocabulary, lambda piece: bool(piece) and not piece.strip(LINE_ENDS))
    change = np.flatnonzero(np.diff(np.r_[True, line_end[symbols], True].astype(np.int8)))
    lines = [slice(start, end) for start, end in change.reshape(-1, 2).tolist()]
    gold = [ends_of(spaces[line]) for line in lines]
    later = [ends[ends < line.stop - line.start - 1] + 1 for ends, line in zip(gold, lines)]
    return against(found, {REMOVED: gold, LATER: later}, lines, symbols)


def against(
    found: Found, gold: Mapping[str, Sequence[np.ndarray]], parts: Sequence[slice], symbols: np.ndarray | None = None
) -> list[Row]:
    """The scores of each level in parts of the text, against the gold ends that fit it best.

    ``gold`` has the ends in each part for each convention; with ``symbols`` whole segments are scored, too.
    """

    def cut(values: np.ndarray) -> list[np.ndarray]:
        return [values[part] for part in parts]

    levels, head = found.boundaries.T, found.words
    return compare(
        [[*map(ends_of, cut(level))] for level in levels],
        gold,
        [len(part) for part in cut(found.surprise)],
        cut(found.surprise),
        cut(found.expected),
        head=None if head is None else [*map(ends_of, cut(head))],
        symbols=None if symbols is None else cut(symbols),
    )


def _are(vocabulary: Vocabulary, kind: Callable[[str], bool]) -> np.ndarray:
    """For each symbol of the vocabulary, whether it is of this kind."""
    return np.array([kind(piece) for piece in vocabulary.pieces(np.arange(len(vocabulary)))])
