"""Segment ends that a model found, scored against gold ends: spaces, removed spaces, those of a file, or pen-ups."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmrnn.analysis.render import LINE_ENDS
from hmrnn.analysis.scores import TOLERANCES, BoundaryScores, Row, compare, ends_of, score
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError
from hmrnn.reading.vocabulary import Vocabulary

BEFORE, AFTER = "before the space", "after the space"
"""Conventions for text: a segment ends with the last letter of a word, or with the space after it."""
REMOVED, LATER, FILE = "where a space was", "one symbol later", "as in the file"
"""Conventions for removed spaces: without them, only the first symbol of the next word shows that a word has ended."""

_LONGEST_FILE = 1 << 28  # characters, so that an endless file is refused


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


def against_white_space(found: Found, symbols: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Scores against the spaces and line ends of the text; several in a row are one gold end."""
    white = _are(vocabulary, str.isspace)[symbols]
    if not white.any() or white.all():
        raise InputError("the text has no words between spaces or line ends to compare with; give a file of gold ends")
    gold = {BEFORE: np.flatnonzero(white[1:] & ~white[:-1]) + 1, AFTER: np.flatnonzero(~white[1:] & white[:-1]) + 1}
    return _compare(found, gold)


def against_removed_spaces(found: Found, symbols: np.ndarray, spaces: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Scores against the places where spaces were removed (``spaces``, (T,)). Every line is a sequence of its own."""
    line_end = _are(vocabulary, lambda piece: bool(piece) and not piece.strip(LINE_ENDS))
    change = np.flatnonzero(np.diff(np.r_[True, line_end[symbols], True].astype(np.int8)))
    lines = [slice(start, end) for start, end in change.reshape(-1, 2).tolist()]
    gold = [ends_of(spaces[line]) for line in lines]
    later = [ends[ends < line.stop - line.start - 1] + 1 for ends, line in zip(gold, lines)]
    return compare(
        [[ends_of(found.boundaries[line, l]) for line in lines] for l in range(found.boundaries.shape[1])],
        {REMOVED: gold, LATER: later},
        [line.stop - line.start for line in lines],
        [found.surprise[line] for line in lines],
        [found.expected[line] for line in lines],
        words=True,
        head=None if found.words is None else [ends_of(found.words[line]) for line in lines],
        symbols=[symbols[line] for line in lines],
    )


def against_ends(found: Found, ends: np.ndarray) -> list[Row]:
    """Scores against given ends."""
    return _compare(found, {FILE: ends})


def pen_ups(steps: np.ndarray) -> np.ndarray:
    """Where strokes end in a line (T, 3), as ``Segmentation.ends`` counts: the number of points before the cut."""
    return ends_of(steps[:, 2] > 0.5)


def against_pen_ups(segmentation: Segmentation, steps: np.ndarray) -> dict[int, dict[int, BoundaryScores]]:
    """The scores of each level's segment ends against the ends of strokes, by level and by tolerance in points."""
    gold = pen_ups(steps)
    return {
        level: {
            tolerance: score(segmentation.ends(level), gold, len(segmentation), tolerance=tolerance)
            for tolerance in TOLERANCES
        }
        for level in range(1, segmentation.levels + 1)
    }


def read_ends(path: str | Path, length: int) -> np.ndarray:
    """Gold ends from a file: one whole number per line, from 1 to ``length``, in any order.

    Empty lines and comments after # are skipped.
    """
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"the file of gold ends, {path}, cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the file of gold ends, {path}, is not UTF-8 text: {error}") from error
    if len(text) > _LONGEST_FILE:
        raise InputError(f"the file of gold ends, {path}, has more than {_LONGEST_FILE:,} characters")
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


def _compare(found: Found, gold: dict[str, np.ndarray]) -> list[Row]:
    levels = [[ends_of(level)] for level in found.boundaries.T]
    length = len(found.surprise)
    right: dict[str, Sequence[ArrayLike]] = {name: [ends] for name, ends in gold.items()}
    head = None if found.words is None else [ends_of(found.words)]
    return compare(levels, right, [length], [found.surprise], [found.expected], head=head)


def _are(vocabulary: Vocabulary, kind: Callable[[str], bool]) -> np.ndarray:
    """For each symbol of the vocabulary, whether it is of this kind."""
    return np.array([kind(piece) for piece in vocabulary.pieces(np.arange(len(vocabulary)))])
