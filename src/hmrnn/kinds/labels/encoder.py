"""LabelEncoder: what a model of labelled sequences reads and answers, as a checkpoint stores it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmrnn.analysis.render import UNKNOWN
from hmrnn.errors import InputError
from hmrnn.kind import Spec
from hmrnn.kinds.labels.answers import AnyAnswer
from hmrnn.kinds.labels.answers.base import Finite, Positive
from hmrnn.kinds.labels.sequences import Item, scale_of, scaled

SPACE = " "
"""The symbol after each token that is spelled out; its tag is read there."""


class LabelEncoder(Spec, frozen=True):
    """Input symbols, or mean and deviation of the channels of a series; and the answer."""

    answer: AnyAnswer
    symbols: tuple[str, ...] = ()
    """The input symbols in ascending order; empty for series. One more index stands for all others."""
    mean: tuple[Finite, ...] = ()
    """Of each channel of a series, as the deviation; empty for symbols."""
    deviation: tuple[Positive, ...] = ()
    channels: tuple[str, ...] = ()
    """The names of these channels; empty if they have none."""
    spelled: bool = False
    """Whether tokens are read character by character, each followed by a space."""

    def __post_init__(self) -> None:
        for wrong, what in (
            (bool(self.symbols) == bool(self.mean), "either symbols, or the scale of channels"),
            (len(self.mean) != len(self.deviation), "a mean and a deviation per channel"),
            (any(a >= b for a, b in zip(self.symbols, self.symbols[1:])), "symbols in ascending order"),
            (self.channels and len(set(self.channels)) != len(self.mean), "distinct names for its channels, or none"),
        ):
            if wrong:
                raise ValueError(f"a label encoder must hold {what}")

    @staticmethod
    def of(
        answer: AnyAnswer, inputs: Sequence[Item], *, spelled: bool = False, channels: tuple[str, ...] = ()
    ) -> LabelEncoder:
        """The encoder of these training sequences, and of their answers."""
        if isinstance(inputs[0], np.ndarray):
            whole = np.concatenate([answer.before(one) for one in inputs if isinstance(one, np.ndarray)])
            mean, deviation = (tuple(numbers.tolist()) for numbers in scale_of(whole))
            return LabelEncoder(answer, mean=mean, deviation=deviation, channels=channels)
        symbols = {symbol for one in inputs for symbol in (spell(one) if spelled else one)}
        return LabelEncoder(answer, tuple(sorted(symbols)), spelled=spelled)

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

    def encode(self, data: Item) -> np.ndarray:
        """Indices (T,) of the symbols of a sequence, or scaled steps (T, channels)."""
        channels = data.shape[1] if isinstance(data, np.ndarray) else 0
        if channels != len(self.mean):
            wanted = f"series of {len(self.mean)} channels" if self.mean else "symbols"
            got = f"a series of {channels}" if channels else "a text or tokens"
            alone = "; put a single series into a list" if channels == 1 and self.mean else ""
            raise InputError(f"this model reads {wanted}; got {got}{alone}")
        if isinstance(data, np.ndarray):
            return scaled(self.answer.before(data), self.mean, self.deviation)
        unknown = len(self.symbols)
        return np.array([self._index.get(symbol, unknown) for symbol in self._read(data)], np.int64)

    def places(self, data: Item) -> np.ndarray:
        """(N,): the step at which each answer of a sequence is read: each step or token, or the last."""
        if not self.answer.per_step:
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

    def describe(self) -> str:
        """What the model reads and answers, for people."""
        named = ", ".join(self.channels[:5]) + (", …" if len(self.channels) > 5 else "")
        series = f"series of {len(self.mean)} channel(s)" + (f" ({named})" if named else "")
        return f"{f'{len(self.symbols)} symbols' if self.symbols else series}, {self.answer.describe()}"

    def counts(self, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
        """How often each input symbol occurs in encoded sequences; None for series."""
        return np.bincount(np.concatenate(inputs), minlength=self.size) if self.symbols else None

    def _read(self, data: Item) -> tuple[str, ...]:
        symbols = tuple(map(str, data))
        return spell(symbols) if self.spelled else symbols

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {symbol: index for index, symbol in enumerate(self.symbols)}


def spell(tokens: Item) -> tuple[str, ...]:
    """The characters of all tokens, a space after each."""
    return tuple("".join(f"{token}{SPACE}" for token in tokens))
