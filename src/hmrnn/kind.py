"""What a kind of data is, and which kinds there are.

The rest of the trunk knows no kind of data: it asks a :class:`Kind`, which it finds here by name. Other packages add
theirs by an entry point of the group ``hmrnn.kinds`` whose name is that of the kind.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import msgspec

from hmrnn.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn


Progress = Callable[[int, int], None] | None
"""A function that is told how much of how much is done."""


class InputSpec(Protocol):
    """What a model needs to know to turn data into its input: a vocabulary, a scale. A checkpoint keeps it."""

    @property
    def unit(self) -> str:
        """What is read at one time step: "character", "byte" or "point"."""
        ...

    def encode(self, data: Any) -> np.ndarray:
        """Data as a model takes them: indices (T,) of the symbols of a text, or scaled steps (T, 3) of strokes."""
        ...

    def decode(self, encoded: Any) -> Any:
        """The inverse of ``encode``."""
        ...

    def pieces(self, encoded: Any) -> list[str]:
        """One string per time step, for display."""
        ...

    def describe(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The base of an InputSpec of which a checkpoint keeps the fields."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(msgspec.to_builtins(self))

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What ``to_dict`` wrote; InputError if it is anything else."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise InputError(
                f"this is no {cls.__name__}, which turns data into the input of a model: {error}"
            ) from error


class Measure(NamedTuple):
    """What the validations of a run measure."""

    unit: str
    """Bits or nats; lower is better. It is the key of the measure in metrics.jsonl."""
    per: str
    """What it is counted per: "character", "sequence"."""


class Kind:
    """A kind of data: its files, its model, its loss and what people do with the result.

    What needs torch is imported when it is used: to know the kinds, nobody waits for it. ``config`` is always
    the :class:`hmrnn.config.Config` of a run, and ``start`` the :class:`hmrnn.checkpoint.Checkpoint` of a model.
    """

    name: str
    formats: tuple[str, ...]
    """The values of data.format that are of this kind."""
    Settings: type[Any]
    """What a run on this kind is asked about its data: the section "data"."""
    Model: type[Any]
    """What it is asked about its model: the section "model"."""
    lacks: Collection[str] = ()
    """Other sections, settings and values of settings that have no effect on this kind: "train.length"."""
    error = "wrong"
    """What the error of a validation, if it has one, is a share of."""
    options: Mapping[str, type[Any]] = {}
    """By command, the options that only this kind has."""
    trains: Mapping[str, str] = {}
    """By command, such as demo, the preset that it trains."""
    presets: Mapping[str, Any] = {}
    """By name, runs that ``hmrnn train`` offers; that of files of one's own has the name of the kind."""
    notes: Mapping[str, str] = {}
    """What the help says of them."""
    parts: Mapping[str, str] = {}
    """Where its other parts are, as "module:name", to be imported when they are used: spec, a class with ``from_dict``;
    corpus, which loads one; task, model and commands; page, if its models can be shown."""

    def part(self, name: str) -> Any:
        return pkgutil.resolve_name(self.parts[name])

    def matches(self, path: Path) -> bool:
        """Whether a file, or a folder of files, is one of this kind, by names alone; only one kind should say so."""
        return False

    @property
    def page(self) -> Any:
        """What ``hmrnn explore`` shows of a model; None if it cannot show one."""
        return self.part("page") if "page" in self.parts else None

    def spec(self, plain: dict[str, Any]) -> InputSpec:
        """The InputSpec that ``to_dict`` gave ``plain`` of."""
        found: InputSpec = self.part("spec").from_dict(plain)
        return found

    def measure(self, spec: InputSpec) -> Measure:
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Raise InputError if settings do not go together, beyond what their types say."""

    def at_hand(self, config: Any) -> Any:
        """``config`` with other data in place of built-in ones that this machine does not have."""
        return config

    def load(self, config: Any, progress: Any = None) -> Any:
        """The corpus that ``config.data`` names."""
        return self.part("corpus")(config.data, progress)

    def settle(self, config: Any, corpus: Any) -> Any:
        """``config`` with the settings that the corpus decides."""
        return config

    def network(self, config: Any, spec: InputSpec, engine: str = "auto") -> nn.Module:
        """A new network; its initial weights come from torch's generator."""
        raise NotImplementedError

    def task(self, config: Any, corpus: Any, device: torch.device, rank: int = 0, world: int = 1) -> Any:
        """Data, network, loss and measure of a run."""
        network = self.network(config, corpus.spec, config.train.engine)
        return self.part("task")(config, corpus, network, device, rank, world)

    def model(self, network: nn.Module, spec: InputSpec, config: Any, source: str | None = None) -> Any:
        """The trained model that :func:`hmrnn.load` returns."""
        return self.part("model")(network, spec, config, source)

    def commands(self, progress: Callable[[str], Any]) -> Any:
        """What the commands do with this kind; ``progress`` makes a function that shows how far something is."""
        return self.part("commands")(self, progress)

    def continued(self, start: Any, name: str, data: Any) -> Any:
        """``data`` as the model ``start``, called ``name``, reads them when it is trained further."""
        raise InputError(f"{name} is a model of {self.name}, which cannot be trained further; train a new one")

    def given(self, start: Any, data: Any, folder: Path, kept: bool) -> Any:
        """Data that a caller of ``model.finetune`` gave, as files; what is no file is written to ``folder``.

        InputError if the run is ``kept`` and would miss them.
        """
        return self.continued(start, "this", data)


def find(name: str) -> Kind:
    """The kind of this name."""
    return _known()[name]


def every() -> list[Kind]:
    """All kinds: ours, then those of other packages."""
    return list(_known().values())


def presets() -> dict[str, Any]:
    """The presets of all kinds."""
    return {name: config for one in every() for name, config in one.presets.items()}


def of(config: Any) -> Kind:
    """The kind of data that a run reads."""
    return reading(config.data.format)


def reading(form: str) -> Kind:
    """The kind of data of a format."""
    for kind in every():
        if form in kind.formats:
            return kind
    raise InputError("no kind of data has this format", setting="data.format", value=form)


@functools.cache
def _known() -> dict[str, Kind]:
    """By name; ours are in the folders of ``hmrnn.kinds``, in the KINDS of their modules ``kind``."""
    folders = pkgutil.iter_modules(importlib.import_module("hmrnn.kinds").__path__)
    ours = (importlib.import_module(f"hmrnn.kinds.{folder.name}.kind").KINDS for folder in folders)
    others = (point.load() for point in entry_points(group="hmrnn.kinds"))
    known: dict[str, Kind] = {}
    for kind in itertools.chain(*ours, others):
        known.setdefault(kind.name, kind)  # nobody replaces ours
    return known
