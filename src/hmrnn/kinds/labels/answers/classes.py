"""Answers that are classes: labels of sequences, tags of steps or tokens, and the symbols of sequences to write."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from hmrnn.analysis.edits import edit_distance, span_f1
from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.base import Answer, Checked, Encoded, Sure, listed
from hmrnn.kinds.labels.sequences import Item, check_text, sequences

Label = str | bool | int | float


class Classes(Answer, frozen=True):
    """Answers that are classes: what labels, tags and written sequences share."""

    classes: Annotated[tuple[Label, ...], msgspec.Meta(min_length=1)]
    noun: ClassVar[str]

    def __post_init__(self) -> None:
        if len(self.index) < len(self.classes):
            raise ValueError("classes must be distinct")

    @functools.cached_property
    def index(self) -> dict[Label, int]:
        return {label: index for index, label in enumerate(self.classes)}

    @classmethod
    def of(cls, targets: Sequence[Any], train: Sequence[Any], **form: Any) -> Classes:
        labels = {label for one in targets for label in one}
        try:
            classes = sorted(labels)
        except TypeError as error:
            raise InputError("must hold all strings or all numbers; got both", setting="y") from error
        if len(classes) < 2:
            raise InputError(
                f"must hold two or more classes; got one class, the {cls.noun} {classes[0]!r}", setting="y"
            )
        return cls(tuple(classes), **form)

    @property
    def size(self) -> int:
        return len(self.classes)

    def describe(self) -> str:
        return f"{self.size} {self.noun}s"

    def encode(self, target: Any) -> np.ndarray:
        """(N,): the indices of labels; InputError about the first that is none of the classes."""
        found = self.right(target)
        if (found < 0).any():
            wrong = target[int(found.argmin())]
            known = ", ".join(map(repr, self.classes[:10])) + (" and others" if self.size > 10 else "")
            raise InputError(f"holds {wrong!r}, which is none of the classes of this model: {known}", setting="y")
        return found

    def right(self, target: Any) -> np.ndarray:
        return np.array([self.index.get(label, -1) for label in target], np.int64)

    def score(self, found: Encoded, wanted: Encoded, weights: np.ndarray) -> float:
        """The share of right answers."""
        right = [(a == b).sum() for a, b in zip(found, wanted)]
        return float(weights @ right / (weights @ [len(one) for one in wanted]))

    def compared(self, found: Encoded, wanted: Encoded) -> str:
        every = np.concatenate(wanted)
        ((most, times),) = Counter(every[every >= 0].tolist()).most_common(1)
        return (
            f"{self.score(found, wanted, np.ones(len(found))):.2%} of the {len(every):,} {self.noun}s are right; "
            f"always {self.classes[most]!r}, the most frequent: {times / len(every):.2%}"
        )


def check_labels(labels: Sequence[Any], name: str = "y") -> None:
    """InputError unless all are strings or finite numbers."""
    for k, label in enumerate(labels):
        if not isinstance(label, Label) or label in (float("inf"), -float("inf")) or label != label:
            raise InputError(f"must be a string or a finite number; got {label!r}", setting=f"{name}[{k}]")
        if isinstance(label, str):
            check_text(label, f"{name}[{k}]")


class Labels(Classes, frozen=True, tag="labels"):
    """A class for each sequence."""

    field: ClassVar[str] = "label"
    noun: ClassVar[str] = "label"
    formats: ClassVar[str] = (
        ".tsv or .csv with a text and a label per line, or with a step of a series per line (columns series, label and "
        "the channels), or .jsonl with text, tokens or series, and label"
    )
    alone: ClassVar[str] = "no label has two (numbers that are no classes are learned by numbers, or HMRegressor)"

    @classmethod
    def check(cls, y: Any, inputs: Sequence[Item], steps: bool | None = None) -> Checked:
        if getattr(y, "ndim", 1) == 2:  # a table, or an array of one column
            if y.shape[1] != 1:
                raise InputError(f"must be one column of labels; got shape {tuple(y.shape)}", setting="y")
            y = np.asarray(y)[:, 0]
        labels = listed(y, "labels")
        check_labels(labels)
        return [[label] for label in labels], {}

    @classmethod
    def of(cls, targets: Sequence[Any], train: Sequence[Any], **form: Any) -> Classes:
        found = super().of(targets, train, **form)
        if found.size == len(targets) > 2 and any(isinstance(c, float) and not c.is_integer() for c in found.classes):
            raise InputError(
                "must hold classes, and every number in it is another; to predict measurements, use hmrnn.HMRegressor, "
                "or hmrnn train numbers",
                setting="y",
            )
        return found

    @classmethod
    def hold_out(cls, inputs: Sequence[Item], targets: Sequence[Any], share: float, order: list[int]) -> list[int]:
        """The same share of every class."""
        by_class: dict[Any, list[int]] = {}
        for k in order:
            by_class.setdefault(targets[k][0], []).append(k)
        taken = [one[: min(len(one) - 1, round(share * len(one)))] for one in by_class.values()]
        if not any(taken):  # a small share of few sequences
            taken = [max(by_class.values(), key=len)[:-1][:1]]
        return [k for one in taken for k in one]

    def given(self, values: np.ndarray, item: Item) -> Any:
        return self.classes[values[0]]

    def sure(self, values: np.ndarray, chances: np.ndarray) -> Sure:
        return dict(zip(self.classes, chances[0].tolist()))


class Tags(Classes, frozen=True, tag="tags"):
    """A class for each step or token."""

    field: ClassVar[str] = "tags"
    noun: ClassVar[str] = "tag"
    formats: ClassVar[str] = (
        ".conll, .tsv or .txt with a token and its tag per line and an empty line between sentences, .csv with a step "
        "of a series per line (columns series and tag), or .jsonl with tokens or series, and tags"
    )
    per_step = True

    @classmethod
    def check(cls, y: Any, inputs: Sequence[Item], steps: bool | None = None) -> Checked:
        found = []
        for k, row in enumerate(listed(y, "lists of tags")):
            tags = list(row) if isinstance(row, str) else listed(row, "tags", f"y[{k}]")
            check_labels(tags, f"y[{k}]")
            found.append(tags)
        return found, {}

    def given(self, values: np.ndarray, item: Item) -> Any:
        return [self.classes[k] for k in values]

    def sure(self, values: np.ndarray, chances: np.ndarray) -> Sure:
        return [float(each[tag]) for tag, each in zip(values, chances)]

    def compared(self, found: Encoded, wanted: Encoded) -> str:
        said = super().compared(found, wanted)
        if "O" in self.classes:
            names = [*map(str, self.classes), "?"]  # what training has not shown has the index -1
            shown = ([[names[k] for k in one] for one in rows] for rows in (found, wanted))
            said += f"; F1 of spans {span_f1(*shown):.3f}"
        return said


class Pairs(Classes, frozen=True, tag="pairs"):
    """A sequence to be written for each sequence: the classes are its symbols; one more index ends it."""

    text: bool = False
    """Whether the second sequences are texts, not lists of tokens."""
    field: ClassVar[str] = "target"
    noun: ClassVar[str] = "symbol to write"
    formats: ClassVar[str] = ".tsv or .csv with two texts per line, or .jsonl with source and target"
    alone: ClassVar[str] = "the first sequences are all the same"

    @classmethod
    def check(cls, y: Any, inputs: Sequence[Item], steps: bool | None = None) -> Checked:
        y = listed(y, "sequences")
        found = sequences(y, "y")
        if isinstance(found[0], np.ndarray):
            raise InputError("must be a text or a list of tokens; got numbers", setting="y[0]")
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

    def encode(self, target: Any) -> np.ndarray:
        return np.append(super().encode(target), self.size)

    def wanted(self, encoded: np.ndarray) -> np.ndarray:
        return encoded[:-1]

    def given(self, values: np.ndarray, item: Item) -> Any:
        written = [self.classes[k] for k in values if k < self.size]
        return "".join(map(str, written)) if self.text else written

    def sure(self, values: np.ndarray, chances: np.ndarray) -> Sure:
        found: list[float] = chances.tolist()
        return found

    def score(self, found: Encoded, wanted: Encoded, weights: np.ndarray) -> float:
        """The share of sequences without an error."""
        return float(np.average([np.array_equal(a, b) for a, b in zip(found, wanted)], weights=weights))

    def error_rate(self, found: Encoded, wanted: Encoded) -> float:
        """Edits (insertions, deletions, substitutions) per symbol of ``wanted``."""
        return sum(edit_distance(a.tolist(), b.tolist()) for a, b in zip(found, wanted)) / sum(map(len, wanted))

    def compared(self, found: Encoded, wanted: Encoded) -> str:
        share, edits = self.score(found, wanted, np.ones(len(found))), self.error_rate(found, wanted)
        return f"{share:.2%} of the {len(wanted):,} sequences are right; {edits:.1%} of the symbols need an edit"
