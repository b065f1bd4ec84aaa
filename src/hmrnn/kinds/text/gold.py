"""Segment ends that a model found in a text, scored against its spaces, or those that were removed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hmrnn.analysis.gold import Found, compare_ends
from hmrnn.analysis.render import LINE_ENDS
from hmrnn.analysis.scores import Row, compare, ends_of
from hmrnn.errors import InputError
from hmrnn.reading.vocabulary import Vocabulary

BEFORE, AFTER = "before the space", "after the space"
"""Conventions for text: a segment ends with the last letter of a word, or with the space after it."""
REMOVED, LATER = "where a space was", "one symbol later"
"""Conventions for removed spaces: without them, only the first symbol of the next word shows that a word has ended."""


def against_white_space(found: Found, symbols: np.ndarray, vocabulary: Vocabulary) -> list[Row]:
    """Scores against the spaces and line ends of the text; several in a row are one gold end."""
    white = _are(vocabulary, str.isspace)[symbols]
    if not white.any() or white.all():
        raise InputError("the text has no words between spaces or line ends to compare with; give a file of gold ends")
    gold = {BEFORE: np.flatnonzero(white[1:] & ~white[:-1]) + 1, AFTER: np.flatnonzero(~white[1:] & white[:-1]) + 1}
    return compare_ends(found, gold)


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


def _are(vocabulary: Vocabulary, kind: Callable[[str], bool]) -> np.ndarray:
    """For each symbol of the vocabulary, whether it is of this kind."""
    return np.array([kind(piece) for piece in vocabulary.pieces(np.arange(len(vocabulary)))])
