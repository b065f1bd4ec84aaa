"""Segment ends that a model found, scored against gold ends, such as those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmrnn.analysis.scores import Row, compare, ends_of
from hmrnn.errors import InputError
from hmrnn.utils.inputs import decoded, read_bytes

FILE = "as in the file"


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


def against_ends(found: Found, ends: np.ndarray) -> list[Row]:
    """Scores against given ends."""
    return compare_ends(found, {FILE: ends})


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


def compare_ends(found: Found, gold: dict[str, np.ndarray]) -> list[Row]:
    """The scores of each level against the gold ends that fit it best; ``gold`` names their conventions."""
    levels = [[ends_of(level)] for level in found.boundaries.T]
    length = len(found.surprise)
    right: dict[str, Sequence[ArrayLike]] = {name: [ends] for name, ends in gold.items()}
    head = None if found.words is None else [ends_of(found.words)]
    return compare(levels, right, [length], [found.surprise], [found.expected], head=head)
