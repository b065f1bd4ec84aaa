"""Labels: a class for each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.base import Classes, check_labels, listed
from hmrnn.kinds.labels.sequences import Item, Name, Names


class Labels(Classes, frozen=True, tag="labels"):
    field: ClassVar[str] = "label"
    noun: ClassVar[str] = "label"
    formats: ClassVar[str] = (
        ".tsv or .csv with a text and a label per line, or with a step of a series per line (columns series, label and "
        "the channels), or .jsonl with text, tokens or series, and label"
    )
    alone: ClassVar[str] = "no label has two (numbers that are no classes are learned by numbers, or HMRegressor)"

    @classmethod
    def check(
        cls, y: Any, inputs: Sequence[Item], names: Names, steps: bool | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        if getattr(y, "ndim", 1) == 2:  # a table, or an array of one column
            if y.shape[1] != 1:
                raise InputError(f"{names.y.whole} must be one column of labels; got shape {tuple(y.shape)}")
            y = np.asarray(y)[:, 0]
        labels = listed(y, names.y.whole, "labels")
        check_labels(labels, names.y)
        return [[label] for label in labels], {}

    @classmethod
    def of(cls, targets: Sequence[Any], train: Sequence[Any], name: Name, **form: Any) -> Classes:
        found = super().of(targets, train, name, **form)
        if found.size == len(targets) > 2 and any(isinstance(c, float) and not c.is_integer() for c in found.classes):
            use = "hmrnn train numbers" if name.item else "hmrnn.HMRegressor"
            raise InputError(
                f"{name.whole} must hold classes, and every number in it is another; to predict measurements, use {use}"
            )
        return found

    @classmethod
    def hold_out(cls, inputs: Sequence[Item], targets: Sequence[Any], share: float, order: list[int]) -> list[int]:
        """The same share of every class."""
        by_class: dict[Any, list[int]] = {}
        for k in order:
            by_class.setdefault(targets[k][0], []).append(k)
        taken = {label: min(len(one) - 1, round(share * len(one))) for label, one in by_class.items()}
        largest = max(by_class, key=lambda label: len(by_class[label]))
        if not any(taken.values()):  # a small share of few sequences
            taken[largest] = min(1, len(by_class[largest]) - 1)
        return [k for label, one in by_class.items() for k in one[: taken[label]]]

    def given(self, values: np.ndarray, item: Item) -> Any:
        return self.classes[values[0]]

    def sure(self, values: np.ndarray, chances: np.ndarray) -> dict[Any, float] | list[float]:
        return dict(zip(self.classes, chances[0].tolist()))
