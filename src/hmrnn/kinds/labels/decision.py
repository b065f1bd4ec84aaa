"""Decision: the answer of a model to one sequence, the segments it found, and which of them decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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

    def said(self, answer: Any = None) -> str:
        """An answer, usually the one of the decision, in one line; numbers to a thousandth of their deviation."""
        answer = self.answer if answer is None else answer
        return shown_answer(answer) if self.deviation is None else shown_numbers(answer, self.deviation)

    def ranked(self, most: int) -> str:
        """The likeliest labels with their probabilities."""
        assert isinstance(self.probabilities, dict)
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:most]
        return ", ".join(f"{label} {p:.3f}" for label, p in ranked)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        chances, found = self.probabilities, self.segmentation
        return {
            "answer": self.answer,
            **({} if self.deviation is None else {"deviation": self.deviation}),
            "probabilities": (
                [{"label": label, "probability": round(p, 4)} for label, p in chances.items()]
                if isinstance(chances, dict)
                else [round(p, 4) for p in chances]
            ),
            "levels": [{"level": level, "ends": found.ends(level)} for level in range(1, found.levels + 1)],
            "weights": rounded(self.weights),
        }

    def render(self, most: int = 5) -> str:
        """The answer, probabilities, the segments, and those that decided most, in lines."""
        deviation = "" if self.deviation is None else f" ± {self.said(self.deviation)}"
        lines = [f"answer  {self.said()}{deviation}"]
        quoted: Callable[[str], str] = str if self.numbers else repr  # steps are no text
        if self.probabilities and isinstance(self.probabilities, dict):
            lines.append(f"        {self.ranked(most)}")
        if self.segmentation.levels and not self.numbers:
            lines.append("segments  " + "|".join(self.shown(a, b) for a, b in self.spans()))
        if self.weights.ndim == 2:
            each = [self.said(one) for one in self.answer]
            if not isinstance(self.probabilities, dict):
                each = [f"{one}  {p:.3f}" for one, p in zip(each, self.probabilities)]
            lines += [f"  {one}  from {quoted(source)}" for one, source in zip(each, self.sources())]
            return "\n".join(lines)
        for part in sorted(self.parts(), key=lambda part: -part.weight)[:most]:
            where = "" if self.numbers else f", {_steps(part.start, part.end)}"
            lines += [f"  {part.weight:6.1%}  {quoted(part.text)}{where}"] * (part.weight >= 0.001)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def _steps(start: int, end: int) -> str:
    return f"step {end}" if end == start + 1 else f"steps {start + 1} to {end}"


def shown_answer(answer: Any) -> str:
    """An answer in one line."""
    return " ".join(map(str, answer)) if isinstance(answer, list) else str(answer)


def shown_numbers(answer: Any, deviation: Any) -> str:
    """A number, or rows of them, in one line, each with 6 digits, and at least to a thousandth of its deviation."""
    sizes = np.abs(answer) / np.asarray(deviation)
    digits = np.ceil(np.log10(np.maximum(sizes, 1))).astype(int) + 3
    return " ".join(f"{one:.{min(max(6, count), 17)}g}" for one, count in zip(np.ravel(answer), np.ravel(digits)))
