"""Segment ends that a model found, scored against gold ends: spaces, removed spaces, those of a file, or pen-ups."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmrnn.analysis.scores import TOLERANCES, BoundaryScores, Row, compare, ends_of, score
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.data.text.vocabulary import Vocabulary
from hmrnn.errors import InputError

BEFORE, AFTER = "before the space", "after the space"
"""The two conventions for text: a segment ends with the last letter of a word, or with the space that follows it."""
REMOVED, LATER, FILE = "where a space was", "one symbol later", "as in the file"
"""Without spaces, a reader can be sure that a word has ended only when the next one has begun: one symbol later."""


class Found(NamedTuple):
    """What a network found in T symbols."""

    boundaries: np.ndarray
    """(T, levels) bool: a segment of that level ends after the symbol. The last row, never asked for, is False."""
    surprise: np.ndarray
    """(T,) float32: bits needed for each symbol, given those before it; NaN for the first."""
    expected: np.ndarray
    """(T,) float32: bits that were to be expected for it, the entropy of the prediction; NaN for the first."""


def against_white_space(found: Found, symbols: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Gold ends are the spaces and line ends of the text, by both conventions; several in a row are one."""
    white = _are(vocabulary, str.isspace)[symbols]
    if not white.any() or white.all():
        raise InputError("the text has no words between spaces or line ends to compare with; give gold ends by --gold")
    gold = {
        BEFORE: np.flatnonzero(white[1:] & ~white[:-1]) + 1,
        AFTER: np.flatnonzero(~white[1:] & white[:-1]) + 1,
    }
    return _compare(found, gold)


def against_removed_spaces(found: Found, symbols: np.ndarray, spaces: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Gold ends are where spaces were taken out, or one symbol later, for a whole level.

    Every line is a sequence of its own: its edges are in plain sight.
    """
    line_end = _are(
        vocabulary, lambda piece: bool(piece) and not piece.strip("\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029")
    )
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
    )


def against_ends(found: Found, ends: np.ndarray) -> list[Row]:
    """Gold ends are given."""
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
    """Gold ends from a file: one whole number per line, the count of symbols before the cut, from 1 to ``length``.

    Empty lines and what follows a # are left out; the order does not matter.
    """
    try:
        lines = Path(os.path.expanduser(path)).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); --gold names a file of ends") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text: {error}; --gold names a file with one end per line") from error
    ends = []
    for number, line in enumerate(lines, start=1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        if not content.isdecimal() or not 1 <= int(content) <= length:
            raise InputError(
                f"{path}, line {number}: an end is a whole number from 1 to {length}, the symbols of the text; "
                f"got {content[:40]!r}"
            )
        ends.append(int(content))
    if not ends:
        raise InputError(f"{path} holds no end; write one per line")
    return np.unique(ends)


def _compare(found: Found, gold: dict[str, np.ndarray]) -> list[Row]:
    levels = [[ends_of(level)] for level in found.boundaries.T]
    length = len(found.surprise)
    return compare(levels, {name: [ends] for name, ends in gold.items()}, [length], [found.surprise], [found.expected])


def _are(vocabulary: Vocabulary, kind: Callable[[str], bool]) -> np.ndarray:
    """Which symbols of the vocabulary are of this kind."""
    return np.array([kind(piece) for piece in vocabulary.pieces(np.arange(len(vocabulary)))])
