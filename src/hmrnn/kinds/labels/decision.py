"""Decision: the answer of a model to one sequence, the segments it found, and which of them decided."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmrnn.analysis.record import rounded
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Part:
    """A segment and its share in a decision."""

    start: int
    end: int
    text: str
    weight: float


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """The answer to one sequence."""

    answer: Any
    """The label; or a list with a tag per step or token; or the sequence that was written; or a number; or a list
    of numbers, which are a row or one per step."""
    probabilities: dict[Any, float] | list[float]
    """The probability of every label; or that of each tag; or that of each symbol written, given those before it.
    Of numbers nothing."""
    segmentation: Segmentation
    """What the network found in the sequence: of a bidirectional one, its forward direction."""
    weights: np.ndarray
    """(steps,): the weight of each step in the decision, of sum 1; of tags and pairs (tags or symbols written, steps).

    Those of attention, or how much the read-out takes from each step; of tags, and of labels by a tree, the shares in
    the size of gradient times input. Of more than 64 tags, neighbours share theirs."""
    numbers: bool = False
    """Whether the sequence is a series of numbers."""
    deviation: float | list[float] | None = None
    """Of an answer in numbers: the deviation of each."""

    def spans(self, level: int = 1) -> list[tuple[int, int]]:
        """Start and end of the segments of a level; of the steps, if the network has no levels."""
        found = self.segmentation
        return found.spans(level) if found.levels else [(t, t + 1) for t in range(len(found))]

    def parts(self, level: int = 1) -> list[Part]:
        """The segments of a level with their weights, in the order of the sequence; of tags and pairs, the means."""
        weights = self.weights
        if weights.ndim == 2:  # nothing at all may be written
            weights = weights.sum(axis=0) / max(1, len(weights))
        return [Part(a, b, self.shown(a, b), float(weights[a:b].sum())) for a, b in self.spans(level)]

    def sources(self, level: int = 1) -> list[str]:
        """For each tag, or each symbol written, the segment of a level that had the largest weight."""
        if self.weights.ndim != 2:
            raise InputError("a label has no sources, as tags and written symbols have, nor has a number; use parts")
        spans = self.spans(level)
        shares = np.array([self.weights[:, a:b].sum(axis=1) for a, b in spans])  # (segments, symbols)
        return [self.shown(*spans[k]) for k in shares.argmax(axis=0)] if shares.shape[1] else []

    def shown(self, start: int, end: int) -> str:
        """The steps from ``start`` to ``end`` for display: their symbols, or their positions if they are numbers."""
        if self.numbers:
            return _steps(start, end)
        symbols = self.segmentation.symbols
        between = " " if any(len(symbol) > 1 for symbol in symbols) else ""  # of tokens
        return between.join(symbols[start:end])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        chances = self.probabilities
        return {
            "answer": self.answer,
            **({} if self.deviation is None else {"deviation": self.deviation}),
            "probabilities": (
                [{"label": label, "probability": round(p, 4)} for label, p in chances.items()]
                if isinstance(chances, dict)
                else [round(p, 4) for p in chances]
            ),
            "levels": [
                {"level": level, "ends": self.segmentation.ends(level)}
                for level in range(1, self.segmentation.levels + 1)
            ],
            "weights": rounded(self.weights),
        }

    def render(self, most: int = 5) -> str:
        """The answer, probabilities, the segments, and those that decided most, in lines."""
        answer = shown_answer(self.answer)
        if self.deviation is not None:
            answer = f"{shown_numbers(self.answer, self.deviation)} ± {shown_numbers(self.deviation, self.deviation)}"
        lines = [f"answer  {answer}"]
        quoted: Callable[[str], str] = str if self.numbers else repr  # steps are no text
        if self.probabilities and isinstance(self.probabilities, dict):
            ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:most]
            lines.append("        " + ", ".join(f"{label} {p:.3f}" for label, p in ranked))
        if self.segmentation.levels and not self.numbers:
            lines.append("segments  " + "|".join(self.shown(a, b) for a, b in self.spans()))
        if not isinstance(self.probabilities, dict):
            each = zip(self.answer, self.probabilities, self.sources())
            lines += [f"  {symbol}  {p:.3f}  from {quoted(source)}" for symbol, p, source in each]
        elif self.weights.ndim == 2:  # numbers of steps
            for one, source in zip(self.answer, self.sources()):
                lines.append(f"  {shown_numbers(one, self.deviation)}  from {quoted(source)}")
        else:
            decided = sorted(self.parts(), key=lambda part: -part.weight)[:most]
            for part in (part for part in decided if part.weight >= 0.001):
                where = "" if self.numbers else f", {_steps(part.start, part.end)}"
                lines.append(f"  {part.weight:6.1%}  {quoted(part.text)}{where}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def _steps(start: int, end: int) -> str:
    return f"step {end}" if end == start + 1 else f"steps {start + 1} to {end}"


def shown_answer(answer: Any) -> str:
    """An answer in one line."""
    return " ".join(map(str, answer)) if isinstance(answer, list) else str(answer)


def shown_right(modality: str, found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """The share of right answers, in a line; of labels and tags beside that of the most frequent one of ``wanted``."""
    if modality == "tags":
        found, wanted = ([one for row in rows for one in row] for rows in (found, wanted))
    share = sum(a == b for a, b in zip(found, wanted, strict=True)) / len(wanted)
    said = f"{share:.2%} of the {len(wanted):,} {'sequences' if modality == 'pairs' else modality} are right"
    if modality == "pairs":
        return said
    ((most, times),) = Counter(wanted).most_common(1)
    return f"{said}; always {most!r}, the most frequent: {times / len(wanted):.2%}"


def shown_numbers(answer: Any, deviation: Any) -> str:
    """A number, or rows of them, in one line, each with 6 digits, and at least to a thousandth of its deviation."""
    sizes = np.abs(answer) / np.asarray(deviation)
    digits = np.ceil(np.log10(np.maximum(sizes, 1))).astype(int) + 3
    return " ".join(f"{one:.{min(max(6, count), 17)}g}" for one, count in zip(np.ravel(answer), np.ravel(digits)))
