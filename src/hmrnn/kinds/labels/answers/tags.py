"""Tags: a class for each step or token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hmrnn.analysis.edits import span_f1
from hmrnn.kinds.labels.answers.base import Classes, check_labels, listed
from hmrnn.kinds.labels.sequences import Item, Names


class Tags(Classes, frozen=True, tag="tags"):
    field: ClassVar[str] = "tags"
    noun: ClassVar[str] = "tag"
    formats: ClassVar[str] = (
        ".conll, .tsv or .txt with a token and its tag per line and an empty line between sentences, .csv with a step "
        "of a series per line (columns series and tag), or .jsonl with tokens or series, and tags"
    )
    per_step = several = True

    @classmethod
    def check(
        cls, y: Any, inputs: Sequence[Item], names: Names, steps: bool | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        found = []
        for k, row in enumerate(listed(y, names.y.whole, "lists of tags")):
            tags = list(row) if isinstance(row, str) else listed(row, names.y[k], "tags")
            check_labels(tags, names.y.inside(k, "tag"))
            found.append(tags)
        return found, {}

    def given(self, values: np.ndarray, item: Item) -> Any:
        return [self.classes[k] for k in values]

    def sure(self, values: np.ndarray, chances: np.ndarray) -> dict[Any, float] | list[float]:
        return [float(each[tag]) for tag, each in zip(values, chances)]

    def compared(self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
        said = super().compared(found, wanted)
        if "O" in self.classes:
            names = [*map(str, self.classes), "?"]  # what training has not shown has the index -1
            shown = ([[names[k] for k in one] for one in rows] for rows in (found, wanted))
            said += f"; F1 of spans {span_f1(*shown):.3f}"
        return said
