"""Pairs: a sequence to be written for each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hmrnn.analysis.edits import edit_distance
from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.base import Classes, listed
from hmrnn.kinds.labels.sequences import ARGUMENTS, Item, Name, Names, sequences


class Pairs(Classes, frozen=True, tag="pairs"):
    """The classes are the symbols of the second sequences; one more index ends them."""

    text: bool = False
    """Whether the second sequences are texts, not lists of tokens."""
    field: ClassVar[str] = "target"
    noun: ClassVar[str] = "symbol to write"
    formats: ClassVar[str] = ".tsv or .csv with two texts per line, or .jsonl with source and target"
    alone: ClassVar[str] = "the first sequences are all the same"
    several = True

    @classmethod
    def check(
        cls, y: Any, inputs: Sequence[Item], names: Names, steps: bool | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        y = listed(y, names.y.whole, "sequences")
        found = sequences(y, names.y)
        if isinstance(found[0], np.ndarray):
            raise InputError(f"{names.y[0]} must be a text or a list of tokens; got numbers")
        return [list(one) for one in found], {"text": isinstance(y[0], str)}

    @classmethod
    def hold_out(cls, inputs: Sequence[Item], targets: Sequence[Any], share: float, order: list[int]) -> list[int]:
        """No first sequence is in both parts."""
        keys = [one if isinstance(one, tuple) else one.tobytes() for one in inputs]
        distinct = list(dict.fromkeys(keys[k] for k in order))
        out = set(distinct[: max(1, round(share * len(distinct)))])
        return [k for k in range(len(inputs)) if keys[k] in out]

    def describe(self) -> str:
        return f"{self.size} symbols to write"

    def encode(self, target: Any, name: Name = ARGUMENTS.y) -> np.ndarray:
        return np.append(super().encode(target, name), self.size)

    def wanted(self, encoded: np.ndarray) -> np.ndarray:
        return encoded[:-1]

    def given(self, values: np.ndarray, item: Item) -> Any:
        written = [self.classes[k] for k in values if k < self.size]
        return "".join(map(str, written)) if self.text else written

    def sure(self, values: np.ndarray, chances: np.ndarray) -> dict[Any, float] | list[float]:
        found: list[float] = chances.tolist()
        return found

    def score(self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], weights: np.ndarray) -> float:
        """The share of sequences without an error."""
        return float(np.average([np.array_equal(a, b) for a, b in zip(found, wanted)], weights=weights))

    def error_rate(self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
        """Edits (insertions, deletions, substitutions) per symbol of ``wanted``."""
        return sum(edit_distance(a.tolist(), b.tolist()) for a, b in zip(found, wanted)) / sum(map(len, wanted))

    def compared(self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
        share, edits = self.score(found, wanted, np.ones(len(found))), self.error_rate(found, wanted)
        return f"{share:.2%} of the {len(wanted):,} sequences are right; {edits:.1%} of the symbols need an edit"
