"""Answer: how the answers of one kind are checked, encoded, held out, scored and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from hmrnn.errors import InputError
from hmrnn.kinds.labels.sequences import Item, iterable

Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Checked = tuple[list[Any], dict[str, Any]]
"""The answer to each sequence, checked, and what the Answer keeps of their form."""
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e300)]
Encoded = Sequence[np.ndarray]
"""The answers to several sequences, as a network learns them."""
Sure = dict[Any, float] | list[float]
"""The probability of each class, or of each part of an answer."""


class Answer(msgspec.Struct, frozen=True, dict=True, tag_field="kind", forbid_unknown_fields=True):
    """What a model of labelled sequences answers, as a checkpoint stores it; a subclass for each kind.

    Each has ``check``, which gives the answers that a user gave as a list; ``of``, which makes it of checked answers;
    ``size``, what a network puts out for an answer; ``encode``, a checked answer as a network learns it: class indices
    (N,), or numbers (N, numbers) in float32; ``given``, an answer as users give it, of what ``encode`` gave or a
    network answered; ``right``, a checked answer to compare with: class indices, -1 for what training has not shown,
    or numbers; ``score`` and ``compared``, how good answers are; and ``describe``.
    """

    field: ClassVar[str]
    """The field of a JSON object, or the column of a table, that holds the answer."""
    formats: ClassVar[str]
    """The files that hold such sequences, for messages."""
    alone: ClassVar[str] = "too few would be left to train on"
    """Why a validation part cannot be taken from a few sequences."""
    per_step = False
    """Whether there is an answer for each step or token."""

    @classmethod
    def hold_out(cls, inputs: Sequence[Item], targets: Sequence[Any], share: float, order: list[int]) -> list[int]:
        """The sequences of the validation part, taken in a random order."""
        return order[: max(1, round(share * len(order)))]

    def before(self, series: np.ndarray) -> np.ndarray:
        """A series as it is before its channels are scaled."""
        return series

    def sure(self, values: np.ndarray, chances: np.ndarray) -> Sure:
        """How likely an answer is, part by part; of numbers nothing."""
        return {}

    def wanted(self, encoded: np.ndarray) -> np.ndarray:
        """What ``encode`` gave, as ``right`` gives it."""
        return encoded


def checked(
    kind: Any,
    y: Any,
    inputs: Sequence[Item],
    about: str = "",
    steps: bool | None = None,
) -> Checked:
    """As ``kind.check``; InputError unless there is an answer per sequence or, where that is asked for, per step.

    ``about`` ends the error about another number of answers.
    """
    targets, form = kind.check(y, inputs, steps)
    if len(targets) != len(inputs):
        got = f"{len(inputs)} sequences and {len(targets)}{about}"
        raise InputError(f"must hold one answer per sequence; got {got}", setting="y")
    for k, (target, one) in enumerate(zip(targets, inputs)):
        if (kind.per_step is True or form.get("per_step")) and len(target) != len(one):
            words = isinstance(one, tuple) and " " in one and len(target) == len("".join(one).split())
            raise InputError(
                f"must hold one answer per step of its sequence, {len(one)}; got {len(target)}"
                + ("; each character of a text is a step: give a list of its words, as by split" if words else ""),
                setting=f"y[{k}]",
            )
    return targets, form


def listed(y: Any, what: str, name: str = "y") -> list[Any]:
    """``y`` as a list of plain values."""
    if y is None:
        raise InputError("fitting requires y to be passed, but the target y is None")
    y = iterable(y)
    y = y.tolist() if hasattr(y, "tolist") else y
    if isinstance(y, str | bytes | Mapping | Set) or not isinstance(y, Iterable):  # a set has no order
        raise InputError(f"must be a list of {what}; got {type(y).__name__}", setting=name)
    return [one.item() if isinstance(one, np.generic) else one for one in y]
