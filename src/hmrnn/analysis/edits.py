"""Edit distance, and spans of tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OUTSIDE = "O"
"""The tag of a step that belongs to no span."""


def edit_distance(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn ``one`` into ``other``."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        above, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


def spans_of_tags(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Start, end and kind of each span. Tags are B-X, I-X and O (BIO), or X and O, where equal neighbours are one span.

    An I-X after another kind begins a span, as in conlleval.
    """
    found: set[tuple[int, int, str]] = set()
    start, kind = 0, OUTSIDE
    for n, tag in enumerate([*tags, OUTSIDE]):
        mark, _, rest = tag.partition("-") if tag[:2] in ("B-", "I-") else ("I", "", tag)
        now = OUTSIDE if tag == OUTSIDE else rest
        if kind != OUTSIDE and (now != kind or mark == "B"):
            found.add((start, n, kind))
            start = n
        elif kind == OUTSIDE:
            start = n
        kind = now
    return found


def span_f1(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> float:
    """F1 of spans that agree in start, end and kind, over all sequences; 1 if there are none in either."""
    both = one = other = 0
    for mine, wanted in zip(found, gold, strict=True):
        a, b = spans_of_tags(mine), spans_of_tags(wanted)
        both, one, other = both + len(a & b), one + len(a), other + len(b)
    return 2 * both / (one + other) if one + other else 1.0
