"""Labelling: what a model of labelled sequences reads and answers, as a checkpoint stores it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from hmrnn.analysis.render import UNKNOWN
from hmrnn.errors import InputError
from hmrnn.kinds.labels.numbers import Numbers
from hmrnn.kinds.labels.sequences import Item, scale_of, scaled

Modality = Literal["labels", "tags", "pairs", "numbers", "series"]
Label = str | bool | int | float
SPACE = " "
"""The symbol after each token that is spelled out; its tag is read there."""


@dataclasses.dataclass(frozen=True)
class Labelling:
    """Input symbols, or mean and deviation of the channels of a series; and the classes or numbers of the answer.

    Args:
        modality: "labels" (one per sequence), "tags" (one per step or token), "pairs" (a sequence), "numbers" (one or
            a row of them per sequence, or per step) or "series" (the next steps, at each step).
        classes: the labels, the tags, or the symbols of the second sequences; empty for numbers and series.
        symbols: the input symbols in ascending order; empty for series. One more index stands for all others.
        mean, deviation: of each channel of a series; empty for symbols.
        channels: the names of these channels; empty if they have none.
        spelled: whether tokens are read character by character, each followed by a space.
        text: pairs: whether the second sequences are texts, not lists of tokens.
        numbers: the scale of the answers if the modality is "numbers" or "series", else None.
    """

    modality: Modality
    classes: tuple[Label, ...]
    symbols: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    spelled: bool = False
    text: bool = False
    channels: tuple[str, ...] = ()
    numbers: Numbers | None = None

    def __post_init__(self) -> None:
        if (self.modality in ("numbers", "series")) != (self.numbers is not None) or (self.numbers and self.classes):
            raise InputError("a labelling must hold the scale of numbers if these are its answers, and else classes")
        if self.numbers is not None and (self.modality == "series") != (self.numbers.ahead > 0):
            raise InputError("a labelling of series, and no other, must say how far forecasts look ahead")
        if self.numbers is None and (not self.classes or len(set(self.classes)) < len(self.classes)):
            raise InputError("a labelling must hold distinct classes, at least one")
        if bool(self.symbols) == bool(self.mean) or len(self.mean) != len(self.deviation):
            raise InputError("a labelling must hold either symbols, or a mean and a deviation per channel")
        if any(a >= b for a, b in zip(self.symbols, self.symbols[1:])):
            raise InputError("the symbols of a labelling must be in ascending order and distinct")
        if not all(map(math.isfinite, self.mean)) or not all(0 < d < math.inf for d in self.deviation):
            raise InputError("the means of a labelling must be finite, and its deviations positive")
        if self.channels and len(set(self.channels)) != len(self.mean):
            raise InputError("the channels of a labelling must have distinct names, or none")

    @staticmethod
    def of(
        modality: Modality,
        inputs: Sequence[Item],
        classes: Sequence[Any],
        *,
        spelled: bool = False,
        text: bool = False,
        channels: tuple[str, ...] = (),
        numbers: Numbers | None = None,
    ) -> Labelling:
        """The labelling of these training sequences, and of classes or numbers."""
        kept: tuple[Label, ...] = tuple(one.item() if isinstance(one, np.generic) else one for one in classes)
        if isinstance(inputs[0], np.ndarray):
            mean, deviation = (tuple(numbers.tolist()) for numbers in scale_of(np.concatenate(inputs)))
            return Labelling(modality, kept, mean=mean, deviation=deviation, channels=channels, numbers=numbers)
        symbols = {symbol for one in inputs for symbol in (spell(one) if spelled else one)}
        ordered = tuple(sorted(symbols))
        return Labelling(modality, kept, symbols=ordered, spelled=spelled, text=text, numbers=numbers)

    @property
    def unit(self) -> str:
        """What is read at one time step."""
        return "symbol" if self.symbols else "step"

    @property
    def tokens(self) -> bool:
        """Whether the sequences are lists of tokens, some of more than one character."""
        return self.spelled or any(len(symbol) > 1 for symbol in self.symbols)

    @property
    def size(self) -> int:
        """Number of input symbols, with the one for all others; or of channels."""
        return len(self.symbols) + 1 if self.symbols else len(self.mean)

    @property
    def outputs(self) -> int:
        """Number of classes, or of numbers of an answer."""
        return len(self.classes) if self.numbers is None else len(self.numbers.mean)

    @property
    def per_step(self) -> bool:
        """Whether there is an answer for each step or token."""
        return self.modality == "tags" or (self.numbers is not None and self.numbers.steps)

    def encode(self, data: Item) -> np.ndarray:
        """Indices (T,) of the symbols of a sequence, or scaled steps (T, channels)."""
        if isinstance(data, np.ndarray):
            if not self.mean:
                raise InputError("this model reads symbols; got a series of numbers")
            if data.shape[1] != len(self.mean):
                alone = "; put a single series into a list" if data.shape[1] == 1 else ""
                raise InputError(f"this model reads series of {len(self.mean)} channels; got {data.shape[1]}{alone}")
            return scaled(from_level(data) if self.modality == "series" else data, self.mean, self.deviation)
        if not self.symbols:
            raise InputError(f"this model reads series of {len(self.mean)} channels; got a text or tokens")
        unknown = len(self.symbols)
        return np.array([self._index.get(symbol, unknown) for symbol in self._read(data)], np.int64)

    def places(self, data: Item) -> np.ndarray:
        """(N,): the step at which each answer of a sequence is read: each step or token, or the last."""
        if not self.per_step:
            return np.array([len(data) - 1])
        if not self.spelled:
            return np.arange(len(data))
        return np.cumsum([len(token) + 1 for token in data]) - 1

    def pieces(self, data: Item) -> list[str]:
        """One string per time step, for display."""
        if isinstance(data, np.ndarray):
            return [" ".join(f"{value:.3g}" for value in step) for step in data]
        return list(self._read(data))

    def decode(self, encoded: Any) -> list[str]:
        """The symbols of these indices; U+FFFD for the one that stands for all others."""
        shown = (*self.symbols, UNKNOWN)
        return [shown[index] for index in np.asarray(encoded, np.int64).tolist()]

    def class_indices(self, labels: Sequence[Any], name: str) -> np.ndarray:
        """(N,): the indices of labels; InputError about the first that training has not shown."""
        plain = [one.item() if isinstance(one, np.generic) else one for one in labels]
        for label in plain:
            if label not in self._classes:
                known = ", ".join(map(repr, self.classes[:10])) + (" and others" if len(self.classes) > 10 else "")
                raise InputError(f"{name} holds {label!r}, which is none of the classes of this model: {known}")
        return np.array([self._classes[label] for label in plain], np.int64)

    def answer_indices(self, rows: Sequence[Sequence[Any]]) -> list[np.ndarray]:
        """The indices of the right answers, -1 for those that training has not shown."""
        return [np.array([self._classes.get(label, -1) for label in row], np.int64) for row in rows]

    def describe(self) -> str:
        """What the model reads and answers, for people."""
        named = ", ".join(self.channels[:5]) + (", …" if len(self.channels) > 5 else "")
        series = f"series of {len(self.mean)} channel(s)" + (f" ({named})" if named else "")
        what = f"{len(self.symbols)} symbols" if self.symbols else series
        answers = {"labels": "labels", "tags": "tags", "pairs": "symbols to write"}
        answers["numbers"] = f"number(s) for each {'step' if self.per_step else 'sequence'}"
        if self.numbers is not None and self.modality == "series":
            return f"{what}, the next {self.numbers.ahead} step(s)"
        return f"{what}, {self.outputs} {answers[self.modality]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(msgspec.to_builtins(self))

    @staticmethod
    def from_dict(data: Any) -> Labelling:
        """What ``to_dict`` wrote; InputError if it is anything else."""
        fields = {field.name for field in dataclasses.fields(Labelling)}
        if not isinstance(data, dict) or data.keys() != fields:
            raise InputError(f"a labelling has exactly the fields {', '.join(sorted(fields))}")
        try:
            return msgspec.convert(data, Labelling)
        except msgspec.ValidationError as error:
            raise InputError(f"this is no labelling: {error}") from error

    def _read(self, data: Item) -> tuple[str, ...]:
        symbols = tuple(map(str, data))
        return spell(symbols) if self.spelled else symbols

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {symbol: index for index, symbol in enumerate(self.symbols)}

    @functools.cached_property
    def _classes(self) -> dict[Label, int]:
        return {label: index for index, label in enumerate(self.classes)}


def from_level(series: np.ndarray) -> np.ndarray:
    """A series less the mean of its first half, so that a trend stays within what training has shown."""
    found: np.ndarray = series - series[: (len(series) + 1) // 2].mean(axis=0)
    return found


def spell(tokens: Item) -> tuple[str, ...]:
    """The characters of all tokens, a space after each."""
    return tuple("".join(f"{token}{SPACE}" for token in tokens))


def counts(labelling: Labelling, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """How often each input symbol occurs in encoded sequences; None for series."""
    if not labelling.symbols:
        return None
    found = Counter(index for one in inputs for index in one.tolist())
    return np.array([found[index] for index in range(labelling.size)])
