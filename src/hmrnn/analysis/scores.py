"""How well found segment ends agree with gold ones, and what baselines get that look at no segment at all.

An end is the number of symbols before a cut, as in ``Segmentation.ends``. The last position of a sequence is always an
end and so tells nothing: only ends from 1 to length - 1 count, found and gold alike. Counts of many sequences are
pooled: precision, recall and the rest come from their sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmrnn.errors import InputError

TOLERANCES = (0, 1)
"""Symbols by which a found end may miss a gold one, as ``compare`` reports them."""
DRAWS = 10
"""Random baselines are averages over so many draws."""


@dataclasses.dataclass(frozen=True)
class BoundaryScores:
    """Counts of ends, and what follows from them; NaN where a share has nothing to be a share of."""

    found: float = 0
    """Ends found."""
    gold: float = 0
    """Ends there are."""
    hits: float = 0
    """Found ends that have a gold end of their own within the tolerance."""

    def __add__(self, other: BoundaryScores) -> BoundaryScores:
        return BoundaryScores(self.found + other.found, self.gold + other.gold, self.hits + other.hits)

    @property
    def precision(self) -> float:
        """Share of the found ends that are right."""
        return _share(self.hits, self.found)

    @property
    def recall(self) -> float:
        """Share of the gold ends that were found."""
        return _share(self.hits, self.gold)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return _share(2 * self.hits, self.found + self.gold)

    @property
    def over_segmentation(self) -> float:
        """Found ends in excess of the gold ones, as a share of those: 0 is as many, 1 twice as many, -1 none."""
        return _share(self.found - self.gold, self.gold)

    @property
    def r_value(self) -> float:
        """Räsänen, Laine and Altosaar (2009): 1 when all is right; a high recall bought by too many ends lowers it.

        In the plane of over-segmentation and recall, 1 minus the mean of two distances: to the ideal point (0, 1), and
        to the line on which every end found is a hit.
        """
        recall, excess = self.recall, self.over_segmentation
        to_ideal = math.hypot(1 - recall, excess)
        to_line = abs(recall - 1 - excess) / math.sqrt(2)
        return 1 - (to_ideal + to_line) / 2

    def to_dict(self) -> dict[str, float | None]:
        """All of it as JSON can hold it: null for NaN."""
        names = ("found", "gold", "hits", "precision", "recall", "f1", "r_value", "over_segmentation")
        return {name: _plain(getattr(self, name)) for name in names}


def ends_of(boundaries: ArrayLike) -> np.ndarray:
    """The ends that flags (T,) mark: position t flagged is an end of t + 1."""
    return np.flatnonzero(np.asarray(boundaries)) + 1


def score(found: ArrayLike, gold: ArrayLike, length: int, *, tolerance: int = 0) -> BoundaryScores:
    """Compare the ends found in one sequence with the gold ones.

    Args:
        found: the ends found, in any order.
        gold: the ends there are.
        length: of the sequence, in symbols; an end at it is left out on both sides.
        tolerance: symbols by which a found end may miss. Each gold end is used up by at most one found end.
    """
    if tolerance < 0:
        raise InputError(f"tolerance must not be negative; got {tolerance}")
    found, gold = _inner(found, length, "found"), _inner(gold, length, "gold")
    return BoundaryScores(len(found), len(gold), _matches(found, gold, tolerance))


def pooled(scores: Iterable[BoundaryScores]) -> BoundaryScores:
    """The scores of many sequences as one."""
    return sum(scores, start=BoundaryScores())


def score_words(found: ArrayLike, gold: ArrayLike, length: int) -> BoundaryScores:
    """Segments instead of ends: one is right if it starts and ends where a gold one does. The edges count as known."""
    found, gold = _inner(found, length, "found"), _inner(gold, length, "gold")
    if length == 0:
        return BoundaryScores()
    one, other = (np.r_[0, ends] * (length + 1) + np.r_[ends, length] for ends in (found, gold))  # a number per segment
    return BoundaryScores(len(found) + 1, len(gold) + 1, len(np.intersect1d(one, other, assume_unique=True)))


def every_position(length: int) -> np.ndarray:
    """An end after every symbol."""
    return np.arange(1, length)


def fixed_length(length: int, rate: float) -> np.ndarray:
    """Ends at equal distances, ``rate`` of them per position; the distances differ by one symbol at most."""
    if rate <= 0:
        return _NONE
    count = math.floor(rate * max(0, length - 1) + 1e-9)
    return np.floor(np.arange(1, count + 1) / rate + 1e-9).astype(np.int64)


def surprise_rises(surprise: ArrayLike) -> np.ndarray:
    """An end before every symbol that surprised the model more than the one before it.

    ``surprise`` (T,) is -log p of each symbol given those before it, in any unit; NaN where there was no prediction.
    """
    return np.flatnonzero(_rises(surprise) > 0) + 1


def surprise_rises_most(surprises: Sequence[ArrayLike], rate: float) -> list[np.ndarray]:
    """As :func:`surprise_rises`, but only the steepest rises over all sequences, ``rate`` of them per position."""
    rises = [_rises(surprise) for surprise in surprises]
    return _highest([np.where(rise > 0, rise, -np.inf) for rise in rises], rate)


def uncertainty(surprise: Any, expected: Any) -> Any:
    """How much each symbol speaks for an end before it: the more, the less the model knows how to go on.

    ``expected`` (T, ...), an array or a tensor, is the surprise that was to be expected of each symbol, the entropy of
    the prediction, and ``surprise`` what it then was. The result is expected[t] + surprise[t] / 4 - expected[t-1] / 4:
    a model that has lost its way is at a loss for a while. The quarters were found on the validation part of Penn
    Treebank without its spaces (results/words-in-small). Before the first symbol counts what is expected of it.
    """
    result = expected + surprise / 4
    result[1:] -= expected[:-1] / 4
    result[:1] -= expected[:1] / 4
    return result


def most_uncertain(surprises: Sequence[ArrayLike], expected: Sequence[ArrayLike], rate: float) -> list[np.ndarray]:
    """Ends where :func:`uncertainty` is highest over all sequences, ``rate`` of them per position."""
    pairs = ((np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(surprises, expected))
    return _highest([np.nan_to_num(uncertainty(*pair)[1:], nan=-np.inf) for pair in pairs], rate)


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to find ends, scored."""

    name: str
    """Of the level or the baseline."""
    convention: str
    """Which of the gold conventions fits it best (highest F1 without tolerance); the scores are for that one."""
    length: float
    """Symbols per segment found."""
    scores: dict[int, BoundaryScores]
    """By tolerance."""
    chance: dict[int, float]
    """By tolerance: the F1 of random ends that are as many as these, averaged over ``DRAWS`` draws."""
    words: BoundaryScores | None = None
    """Segments with both ends right, without tolerance; None if not asked for."""

    def to_dict(self) -> dict[str, object]:
        """As JSON can hold it."""
        by_tolerance = {
            str(tolerance): {**scores.to_dict(), "f1_by_chance": _plain(self.chance[tolerance])}
            for tolerance, scores in self.scores.items()
        }
        words = None if self.words is None else self.words.to_dict()
        return {"name": self.name, "convention": self.convention, "symbols_per_segment": _plain(self.length),
                "tolerance": by_tolerance, "words": words}  # fmt: skip


def compare(
    levels: Sequence[Sequence[ArrayLike]],
    gold: dict[str, Sequence[ArrayLike]],
    lengths: Sequence[int],
    surprises: Sequence[ArrayLike] | None = None,
    expected: Sequence[ArrayLike] | None = None,
    *,
    words: bool = False,
    seed: int = 1,
) -> list[Row]:
    """A row for every level, then one for every baseline, over one or many sequences.

    Args:
        levels: for each level, for each sequence, the ends found.
        gold: for each sequence the ends there are, under the name of the convention they follow. Where there are
            several (does a space belong to the word before it?), each row is scored by the one that suits it best.
        lengths: of the sequences.
        surprises: for each sequence, -log p of each symbol; without it there are no baselines of surprise.
        expected: for each sequence, what was to be expected of that; without it there is no baseline of uncertainty.
        words: score whole segments, too.
        seed: of the random baselines.
    """
    for what, sequences in [*((f"level {l}", ends) for l, ends in enumerate(levels, 1)), *gold.items()]:
        if len(sequences) != len(lengths):
            raise InputError(f"{what}: ends of {len(lengths)} sequences were expected, one per length; "
                             f"got {len(sequences)}")  # fmt: skip
    if not gold or not len(lengths):
        raise InputError("there are no gold ends to compare with")
    whole = _Joined(lengths, np.random.default_rng(seed))
    right = {convention: whole.join(ends) for convention, ends in gold.items()}
    count = len(next(iter(right.values())))
    rate = count / max(1, len(whole.positions))
    candidates: dict[str, list[np.ndarray]] = {
        **{f"level {l}": [whole.join(ends)] for l, ends in enumerate(levels, start=1)},
        "every position": [whole.positions],
        "fixed length": [whole.positions[fixed_length(len(whole.positions) + 1, rate) - 1]],  # from line to line
        "random": whole.draws(count),
    }
    if surprises is not None:
        candidates["surprise rises"] = [whole.join([surprise_rises(surprise) for surprise in surprises])]
        candidates["surprise rises most"] = [whole.join(surprise_rises_most(surprises, rate))]
        if expected is not None:
            candidates["most uncertain"] = [whole.join(most_uncertain(surprises, expected, rate))]
    return [_row(name, draws, right, whole, words) for name, draws in candidates.items()]


def table(rows: Sequence[Row], tolerance: int) -> str:
    """The rows as text, in 80 columns if they fit; "chance" is F1 by chance, "over" the over-segmentation."""
    conventions = len({row.convention for row in rows}) > 1
    words = tolerance == 0 and all(row.words is not None for row in rows)
    names = ("length", "prec.", "recall", "F1", "chance", "R", "over") + ("word F1",) * words + ("gold",) * conventions
    lines = [["", *names]]
    for row in rows:
        s = row.scores[tolerance]
        cells = [f"{row.length:.1f}", *map(_cell, (s.precision, s.recall, s.f1, row.chance[tolerance], s.r_value))]
        cells.append("-" if math.isnan(s.over_segmentation) else f"{round(s.over_segmentation, 2) + 0.0:+.0%}")
        cells += [_cell(row.words.f1)] if words and row.words else []
        cells += [row.convention.split()[0]] if conventions else []
        lines.append([row.name, *cells])
    first, *widths = (max(map(len, column)) for column in zip(*lines))
    space = 2 if first + sum(widths) + 2 * len(widths) <= 80 else 1
    return "\n".join(
        f"{name:{first}}" + "".join(f"{cell:>{width + space}}" for cell, width in zip(cells, widths))
        for name, *cells in lines
    )


class _Joined:
    """Sequences in a row, so far apart that no tolerance reaches from one into the next."""

    def __init__(self, lengths: Sequence[int], generator: np.random.Generator) -> None:
        self.lengths, self.generator = np.asarray(lengths, np.int64), generator
        gap = 1 + max(TOLERANCES)
        self.starts = np.cumsum(np.r_[0, self.lengths + gap])[:-1]
        self.positions = self.join([every_position(length) for length in lengths])
        """Where an end can be."""

    def join(self, ends: Sequence[ArrayLike]) -> np.ndarray:
        parts = zip(ends, self.lengths.tolist(), self.starts.tolist())
        return np.concatenate([_NONE, *(_inner(part, length, "its") + start for part, length, start in parts)])

    def draws(self, count: int) -> list[np.ndarray]:
        return [np.sort(self.generator.choice(self.positions, count, replace=False)) for _ in range(DRAWS)]

    def segments(self, ends: np.ndarray) -> np.ndarray:
        """A number for each segment that says where it starts and ends."""
        filled = self.lengths > 0
        starts = self.starts[filled]
        edges = np.sort(np.concatenate([ends, starts, starts + self.lengths[filled]]))
        numbers = edges[:-1] * (self.starts[-1] + self.lengths[-1] + 1) + edges[1:]
        return numbers[~np.isin(edges[1:], starts)]  # what lies between two sequences is no segment


def _row(name: str, draws: list[np.ndarray], gold: dict[str, np.ndarray], whole: _Joined, words: bool) -> Row:
    """``draws`` are sets of ends to average over: one, but for the random baseline."""
    plain = {convention: _mean_scores(draws, ends, 0) for convention, ends in gold.items()}
    convention = max(plain, key=lambda name: np.nan_to_num(plain[name].f1))
    right = gold[convention]
    random = draws if len(draws) > 1 else whole.draws(len(draws[0]))
    segments = _mean_scores([whole.segments(ends) for ends in draws], whole.segments(right), 0) if words else None
    return Row(
        name,
        convention,
        _share(int(whole.lengths.sum()), plain[convention].found + int(np.count_nonzero(whole.lengths))),
        {tolerance: _mean_scores(draws, right, tolerance) for tolerance in TOLERANCES},
        {tolerance: _mean_scores(random, right, tolerance).f1 for tolerance in TOLERANCES},
        segments,
    )


def _mean_scores(draws: Sequence[np.ndarray], gold: np.ndarray, tolerance: int) -> BoundaryScores:
    hits = np.mean([_matches(ends, gold, tolerance) for ends in draws])
    return BoundaryScores(float(np.mean([len(ends) for ends in draws])), len(gold), float(hits))


def _matches(found: np.ndarray, gold: np.ndarray, tolerance: int) -> int:
    """The most pairs that can be made, each end in one at most. Taking the leftmost that fits is best."""
    if tolerance == 0:
        return len(np.intersect1d(found, gold, assume_unique=True))
    pairs, i, j = 0, 0, 0
    here, there = found.tolist(), gold.tolist()
    while i < len(here) and j < len(there):
        distance = here[i] - there[j]
        if -tolerance <= distance <= tolerance:
            pairs, i, j = pairs + 1, i + 1, j + 1
        elif distance < 0:
            i += 1
        else:
            j += 1
    return pairs


_NONE = np.zeros(0, np.int64)


def _inner(ends: ArrayLike, length: int, what: str) -> np.ndarray:
    """Sorted, each once, without the last position."""
    array = np.unique(np.asarray(ends))
    if array.size == 0:
        return _NONE
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{what} ends must be whole numbers; got {array.dtype}")
    if array[0] < 1 or array[-1] > length:
        raise InputError(f"{what} ends must lie between 1 and the length, {length}; got {array[0]} to {array[-1]}")
    return array[array < length].astype(np.int64)


def _highest(scores: Sequence[np.ndarray], rate: float) -> list[np.ndarray]:
    """Ends at the highest scores of all inner positions, ``rate`` of them; those of minus infinity are none."""
    together = np.concatenate([np.zeros(0), *scores])
    highest = np.zeros(len(together), bool)
    highest[np.argsort(-together, kind="stable")[: round(rate * len(together))]] = True
    return _split(highest & (together > -np.inf), [len(part) for part in scores])


def _split(flags: np.ndarray, positions: Sequence[int]) -> list[np.ndarray]:
    """The ends of each sequence, from flags over the inner positions of all of them in a row."""
    return [ends_of(part) for part in np.split(flags, np.cumsum(positions))[: len(positions)]]


def _rises(surprise: ArrayLike) -> np.ndarray:
    """(T - 1,): by how much each symbol but the first surprised more than the one before it; 0 where unknown."""
    values = np.asarray(surprise, np.float64)
    return np.nan_to_num(np.diff(values), nan=0.0) if len(values) else values


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _cell(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.3f}"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else int(value) if float(value).is_integer() else round(value, 6)
