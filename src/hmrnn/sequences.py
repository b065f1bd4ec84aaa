"""A kind of data whose sequences are predicted step by step: all of it but its files, its input and its network."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn.config import CONTEXT, OF_TEXT, DataConfig, ModelConfig
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec, Kind, Measure, Spec
from hmrnn.utils import files
from hmrnn.utils.options import OneSequence

if TYPE_CHECKING:
    from torch import nn

    from hmrnn.checkpoint import Checkpoint
    from hmrnn.config import Config


@dataclasses.dataclass(frozen=True)
class SequenceCorpus:
    """Sequences, as ``spec.encode`` takes them, for training, validation and test."""

    name: str
    spec: InputSpec
    train: Sequence[Any]
    valid: Sequence[Any]
    test: Sequence[Any] = ()

    def encoded(self, part: str) -> tuple[Sequence[np.ndarray], Sequence[str] | None]:
        """The sequences of a part as the network reads them, and their conditions, if there are any."""
        return [self.spec.encode(one) for one in getattr(self, part)], None

    def describe(self) -> str:
        """What it holds, in a few lines."""
        parts = ((name, getattr(self, name)) for name in ("train", "valid", "test"))
        return "\n".join([f"{self.name}: {self.spec.describe()}", *(f"{n:5} {len(a):>8,} sequences" for n, a in parts)])


class SymbolSpec(Spec, frozen=True):
    """The symbols of a model that reads sequences of them, such as words, notes or states; ``unit`` is one of them."""

    symbols: tuple[str, ...]
    unit: str = "symbol"

    def encode(self, sequence: Sequence[str]) -> np.ndarray:
        """(T,) int64: the index of each symbol."""
        places = {symbol: k for k, symbol in enumerate(self.symbols)}
        if (unknown := next((symbol for symbol in sequence if symbol not in places), None)) is not None:
            raise InputError(f"the model does not know the {self.unit} {unknown!r}")
        return np.array([places[symbol] for symbol in sequence], np.int64)

    def decode(self, indices: np.ndarray) -> list[str]:
        return [self.symbols[k] for k in indices]

    def pieces(self, indices: np.ndarray) -> list[str]:
        return [f"{symbol} " for symbol in self.decode(indices)]

    def describe(self) -> str:
        return f"{len(self.symbols)} {self.unit}s"


class SequenceKind(Kind):
    """The base of kinds of other packages, which must only say how to :meth:`load` a :class:`SequenceCorpus`.

    Its sequences are of symbols unless ``spec`` and ``network`` are made for something else.
    """

    Settings, Model, lacks = DataConfig, ModelConfig, (*OF_TEXT, *CONTEXT)
    options = dict.fromkeys(("score", "segment", "plot"), OneSequence)

    parts = {  # noqa: RUF012
        "spec": "hmrnn.sequences:SymbolSpec",
        "task": "hmrnn.training.sequences:SequenceTask",
        "model": "hmrnn.pretrained.sequences:SequenceModel",
        "commands": "hmrnn.pretrained.commands:SequenceCommands",
        "page": "hmrnn.pretrained.page:SequencePage",
    }

    def check(self, config: Config) -> None:
        if not config.data.path:
            raise InputError(f"must name files of {self.name}", setting="data.path")

    def network(self, config: Config, spec: InputSpec, engine: str = "auto") -> nn.Module:
        from hmrnn.nn.predictor import SymbolPredictor

        return SymbolPredictor(len(spec.symbols), config.model, engine=engine, detectors=config.detectors)  # type: ignore[attr-defined]

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("bits", spec.unit)

    def continued(self, start: Checkpoint, name: str, data: DataConfig) -> DataConfig:
        return data

    def given(self, start: Checkpoint, data: Any, folder: Path, kept: bool) -> DataConfig:
        return dataclasses.replace(start.config.data, path=files.paths(data))
