"""Scores of found segment ends, and of baselines, against gold ends.

An end is the number of symbols before a cut, as in ``Segmentation.ends``. The length of a sequence is always an end, so
only ends from 1 to length - 1 are counted, found and gold. Counts of several sequences are added up before precision,
recall and the other scores are computed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmrnn.analysis.baselines import fixed_length, most_uncertain, surprise_rises
from hmrnn.config.checks import Natural
from hmrnn.errors import InputError
from hmrnn.nn.checks import argument

TOLERANCES = (0, 1)
"""Symbols by which a found end may miss a gold one, in the rows of ``compare``."""
DRAWS = 10
"""Number of draws that random baselines are averaged over."""


@dataclasses.dataclass(frozen=True)
class BoundaryScores:
    """Counts of ends and the scores computed from them; NaN where the denominator is 0."""

    found: float = 0
    """Number of found ends."""
    gold: float = 0
    """Number of gold ends."""
    hits: float = 0
    """Found ends matched with a gold end within the tolerance, one to one."""

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
        """(found - gold) / gold: 0 for as many ends as gold, 1 for twice as many, -1 for none."""
        return _share(self.found - self.gold, self.gold)

    @property
    def r_value(self) -> float:
        """R-value of Räsänen, Laine and Altosaar (2009): 1 if all ends are right, lower if there are too many.

        In the plane of over-segmentation and recall, 1 minus the mean of two distances: to the ideal point (0, 1), and
        to the line on which every found end is a hit.
        """
        recall, excess = self.recall, self.over_segmentation
        to_ideal = math.hypot(1 - recall, excess)
        to_line = abs(recall - 1 - excess) / math.sqrt(2)
        return 1 - (to_ideal + to_line) / 2

    def to_dict(self) -> dict[str, float | None]:
        """Counts and scores as plain data for JSON, None for NaN."""
        names = ("found", "gold", "hits", "precision", "recall", "f1", "r_value", "over_segmentation")
        return {name: _plain(getattr(self, name)) for name in names}


def ends_of(boundaries: ArrayLike) -> np.ndarray:
    """The ends of flags (T,): a flag at position t is an end of t + 1."""
    return np.flatnonzero(np.asarray(boundaries)) + 1


def score(found: ArrayLike, gold: ArrayLike, length: int, *, tolerance: int = 0) -> BoundaryScores:
    """Scores of the ends found in one sequence.

    Args:
        found: the found ends, in any order.
        gold: the gold ends, in any order.
        length: of the sequence, in symbols; an end at this position is not counted.
        tolerance: symbols by which a found end may miss. A gold end is matched with at most one found end.
    """
    argument("tolerance", tolerance, Natural)
    whole = _Joined([length])
    return _near(whole.join([found]), whole.join([gold]), tolerance)


def pooled(scores: Iterable[BoundaryScores]) -> BoundaryScores:
    """The sum of the counts of several sequences."""
    return sum(scores, start=BoundaryScores())


def score_words(found: ArrayLike, gold: ArrayLike, length: int) -> BoundaryScores:
    """Scores of segments: one is right if it starts and ends as a gold one does. Edges of the sequence are right."""
    whole = _Joined([length])
    return _common(*(set(whole.segments(whole.join([ends]))) for ends in (found, gold)))


@dataclasses.dataclass(frozen=True)
class Row:
    """The scores of a level or a baseline."""

    name: str
    """Name of the level or the baseline."""
    convention: str
    """The gold convention with the highest F1 at tolerance 0; the scores are for this one."""
    length: float
    """Symbols per found segment."""
    scores: dict[int, BoundaryScores]
    """Scores by tolerance."""
    chance: dict[int, float]
    """F1 of as many random ends, by tolerance; the mean of ``DRAWS`` draws."""
    words: BoundaryScores | None = None
    """Scores of segments with both ends right, at tolerance 0; this and what follows: None if not asked for."""
    types: BoundaryScores | None = None
    """Scores of the different segments: one is found if it is among the gold ones anywhere."""

    def to_dict(self) -> dict[str, object]:
        """The row as plain data for JSON."""
        by_tolerance = {
            str(tolerance): {**scores.to_dict(), "f1_by_chance": _plain(self.chance[tolerance])}
            for tolerance, scores in self.scores.items()
        }
        words = None if self.words is None else self.words.to_dict()
        types = None if self.types is None else self.types.to_dict()
        return {"name": self.name, "convention": self.convention, "symbols_per_segment": _plain(self.length),
                "tolerance": by_tolerance, "words": words, "types": types}  # fmt: skip


def compare(
    levels: Sequence[Sequence[ArrayLike]],
    gold: Mapping[str, Sequence[ArrayLike]],
    lengths: Sequence[int],
    surprises: Sequence[ArrayLike] | None = None,
    expected: Sequence[ArrayLike] | None = None,
    *,
    head: Sequence[ArrayLike] | None = None,
    symbols: Sequence[np.ndarray] | None = None,
    seed: int = 1,
) -> list[Row]:
    """A row for every level, then one for every baseline, over one or more sequences.

    Args:
        levels: for each level, the found ends of each sequence.
        gold: for each convention, the gold ends of each sequence. With several conventions (a space belongs to the
            word before it, or does not), each row is scored by the one that gives it the highest F1.
        lengths: the length of each sequence.
        surprises: -log p of each symbol of each sequence; without it there are no baselines of surprise.
        expected: the entropy of each prediction of each sequence; without it there is no baseline of uncertainty.
        head: the ends of each sequence by a segmental head, for a row of its own.
        symbols: the symbols of each sequence; with them whole segments are scored, too, and the different ones.
        seed: of the random baselines.
    """
    named = {} if head is None else {"head": head}
    named |= {f"level {l}": ends for l, ends in enumerate(levels, start=1)}
    if not gold or not len(lengths) or {len(one) for one in [*named.values(), *gold.values()]} != {len(lengths)}:
        raise InputError(
            f"the ends of each level and of gold must be those of {len(lengths)} sequences, one per length"
        )
    whole, generator = _Joined(lengths), np.random.default_rng(seed)
    right = {convention: whole.join(ends) for convention, ends in gold.items()}
    count = len(next(iter(right.values())))
    rate = count / max(1, len(whole.positions))

    def drawn(count: int) -> list[np.ndarray]:
        return [np.sort(generator.choice(whole.positions, count, replace=False)) for _ in range(DRAWS)]

    candidates: dict[str, list[np.ndarray]] = {
        **{name: [whole.join(ends)] for name, ends in named.items()},
        "every position": [whole.positions],
        "fixed length": [whole.positions[fixed_length(len(whole.positions) + 1, rate) - 1]],  # from line to line
        "random": drawn(count),
    }
    if surprises is not None:
        candidates["surprise rises"] = [whole.join(surprise_rises(surprises))]
        candidates["surprise rises most"] = [whole.join(surprise_rises(surprises, rate))]
        if expected is not None:
            candidates["most uncertain"] = [whole.join(most_uncertain(surprises, expected, rate))]
    content = None if symbols is None else whole.content(symbols)

    def row(name: str, sets: list[np.ndarray]) -> Row:
        """The means over several sets of ends, for the random baseline, or over one."""
        plain = {convention: _mean(_near(ends, its, 0) for ends in sets) for convention, its in right.items()}
        convention = max(plain, key=lambda name: np.nan_to_num(plain[name].f1))
        its = right[convention]
        random = sets if len(sets) > 1 else drawn(len(sets[0]))
        near, chance = (
            {tolerance: _mean(_near(ends, its, tolerance) for ends in some) for tolerance in TOLERANCES}
            for some in (sets, random)
        )
        words = types = None
        if content is not None:
            known, *found = (whole.segments(ends) for ends in (its, *sets))
            words = _mean(_common(set(one), set(known)) for one in found)
            kinds = {content[start:end].tobytes() for start, end in known}
            types = _mean(_common({content[start:end].tobytes() for start, end in one}, kinds) for one in found)
        segments = near[0].found + int(np.count_nonzero(whole.lengths))
        by_chance = {tolerance: scores.f1 for tolerance, scores in chance.items()}
        return Row(name, convention, _share(int(whole.lengths.sum()), segments), near, by_chance, words, types)

    return [row(*candidate) for candidate in candidates.items()]


def table(rows: Sequence[Row], tolerance: int) -> str:
    """The rows as a table, in 80 columns if they fit; "chance" is F1 by chance, "over" the over-segmentation."""
    conventions = len({row.convention for row in rows}) > 1
    names = ["length", "prec.", "recall", "F1", "chance", "R", "over"]
    names += ["word F1", "type F1"] * (tolerance == 0 and rows[0].words is not None)
    lines = [["", *names, *["gold"] * conventions]]
    for row in rows:
        s = row.scores[tolerance]
        cells = [f"{row.length:.1f}", *map(_cell, (s.precision, s.recall, s.f1, row.chance[tolerance], s.r_value))]
        cells.append("-" if math.isnan(s.over_segmentation) else f"{round(s.over_segmentation, 2) + 0.0:+.0%}")
        cells += [_cell(one.f1) for one in (row.words, row.types) if one is not None and tolerance == 0]
        cells += [row.convention.split()[0]] if conventions else []
        lines.append([row.name, *cells])
    first, *widths = (max(map(len, column)) for column in zip(*lines))
    space = 2 if first + sum(widths) + 2 * len(widths) <= 80 else 1
    return "\n".join(
        f"{name:{first}}" + "".join(f"{cell:>{width + space}}" for cell, width in zip(cells, widths))
        for name, *cells in lines
    )


class _Joined:
    """Sequences joined into one, with gaps that no tolerance reaches across."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = np.asarray(lengths, np.int64)
        gap = 1 + max(TOLERANCES)
        self.starts = np.cumsum(np.r_[0, self.lengths + gap])[:-1]
        self.positions = self.join([np.arange(1, length) for length in lengths])
        """Positions where an end can be."""

    def join(self, ends: Sequence[ArrayLike]) -> np.ndarray:
        parts = zip(ends, self.lengths.tolist(), self.starts.tolist())
        return np.concatenate([_NONE, *(_inner(part, length) + start for part, length, start in parts)])

    def segments(self, ends: np.ndarray) -> list[tuple[int, int]]:
        """The start and the end of each segment; a gap between two sequences is none."""
        filled = self.lengths > 0
        starts, stops = self.starts[filled], (self.starts + self.lengths)[filled]
        return list(zip(*(np.sort(np.r_[ends, edges]).tolist() for edges in (starts, stops))))

    def content(self, symbols: Sequence[np.ndarray]) -> np.ndarray:
        """The symbols of all sequences, with zeros in the gaps."""
        joined = np.zeros(int(self.starts[-1] + self.lengths[-1]), np.int32)
        for start, part in zip(self.starts.tolist(), symbols):
            joined[start : start + len(part)] = part
        return joined


def _near(found: np.ndarray, gold: np.ndarray, tolerance: int) -> BoundaryScores:
    """Ends matched one to one; taking the leftmost pair that fits gives the most pairs."""
    if tolerance == 0:
        return BoundaryScores(len(found), len(gold), len(np.intersect1d(found, gold, assume_unique=True)))
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
    return BoundaryScores(len(found), len(gold), pairs)


def _common(found: set[Any], gold: set[Any]) -> BoundaryScores:
    return BoundaryScores(len(found), len(gold), len(found & gold))


def _mean(scores: Iterable[BoundaryScores]) -> BoundaryScores:
    each = list(scores)
    return BoundaryScores(*(count / len(each) for count in dataclasses.astuple(pooled(each))))


_NONE = np.zeros(0, np.int64)


def _inner(ends: ArrayLike, length: int) -> np.ndarray:
    """The ends sorted and unique, without the length."""
    array = np.unique(np.asarray(ends))
    if array.size == 0:
        return _NONE
    if array.ndim != 1 or array.dtype.kind not in "iu" or array[0] < 1 or array[-1] > length:
        raise InputError(f"ends must be whole numbers from 1 to the length, {length}; got {array.tolist()[:9]}")
    return array[array < length].astype(np.int64)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _cell(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.3f}"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else int(value) if float(value).is_integer() else round(value, 6)
