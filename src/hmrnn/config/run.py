"""All settings of a run, and how they go together."""

from __future__ import annotations

import dataclasses
import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import msgspec

from hmrnn import kind
from hmrnn.config import checks
from hmrnn.config.changes import fit, replaced
from hmrnn.config.json import decoded, fitting, to_json
from hmrnn.config.sections import DetectorConfig, RegulariseConfig, SegmentConfig, TrainConfig
from hmrnn.config.toml import to_toml
from hmrnn.errors import InputError, check_not_root, did_you_mean, no_file
from hmrnn.utils import files

LARGEST = 1 << 20
"""Bytes of the largest file of a run that is read."""


class _Data(msgspec.Struct):
    format: str


class _Kind(msgspec.Struct):
    data: _Data


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run: ``print`` shows those that are not the defaults, as TOML."""

    data: Any
    """The Settings of the kind of data, a DataConfig."""
    model: Any
    """The Model of the kind of data, a ModelConfig."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    regularise: Annotated[RegulariseConfig, checks.BY_GRADIENT] = dataclasses.field(default_factory=RegulariseConfig)
    detectors: Annotated[DetectorConfig, checks.DETECTING] = dataclasses.field(default_factory=DetectorConfig)
    segments: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)

    def __str__(self) -> str:
        return to_toml(self, defaults=False)

    @classmethod
    def load(cls, target: str | Path) -> Config:
        """The run that ``hmrnn train TARGET`` would make.

        ``target`` is a preset, data, the file of a run (.toml or .json), or the folder of a run.
        """
        return cls.named(os.fspath(target))[1]

    def save(self, path: str | Path) -> Path:
        """Write all settings to a file, as JSON if its name ends in .json, else as TOML."""
        path = Path(os.path.expanduser(path))
        if path.suffix == ".json":
            return files.write(path, to_json(self), advice=files.ADVICE)
        try:
            return files.write(path, to_toml(self).encode(), advice=files.ADVICE)
        except UnicodeEncodeError as error:
            raise InputError(f"TOML holds no names of files that are not UTF-8; save {path.stem}.json") from error

    def changed(self, settings: Mapping[str, Any]) -> Config:
        """This run with other ``settings``, named in full as in ``{"model.num_layers": 2}``.

        Sizes and rates of detectors that were made for another number of layers, or another network, follow.
        """
        known = [one.name for one in checks.settings_of(type(self), self)]
        for name in settings:
            if name not in known:
                raise InputError(f"there is no such setting{did_you_mean(name, known)}", setting=name)
        return fit(replaced(self, settings), self, settings)

    @classmethod
    def named(cls, target: str) -> tuple[str, Config]:
        """The name and the settings of :meth:`load`."""
        presets, path = kind.presets(), Path(target)
        if target in presets:
            return target, kind.of(presets[target]).at_hand(presets[target])
        if not os.path.exists(target):
            if os.path.islink(target):
                raise no_file(target)
            hint = did_you_mean(target, presets, files=True)
            if any(target in one.formats for one in kind.every()):
                hint = f"; it is a format, for --data.format {target} of hmrnn train"
            raise InputError(
                f"{target!r} is neither a preset ({', '.join(presets)}) nor a file or directory that exists{hint}"
            )
        check_not_root(target)
        path = path / "config.json" if (path / "config.json").is_file() else path
        if path.suffix == ".toml" or path.name == "config.json" or _holds_run(path):
            return (path.parent if path.name == "config.json" else path).resolve().stem, cls.read(path)
        fits = [one.name for one in kind.every() if one.matches(path)]
        if len(fits) != 1:
            names = fits or [one.name for one in kind.every()]
            raise InputError(
                f"the name of {target} does not say whether it holds {', '.join(names[:-1])} or {names[-1]}: name one "
                f"of these before it, as in {names[0]} {shlex.quote(target)}"
            )
        return path.resolve().stem, presets[fits[0]].changed({"data.path": (target,)})

    @classmethod
    def read(cls, path: Path) -> Config:
        """The run in a file; an InputError about a setting says which, and names the file."""
        try:
            data = files.content(path, LARGEST)
            if data is None:
                raise ValueError(f"it has more than {LARGEST:,} bytes")
            plain = tomllib.loads(data.decode()) if path.suffix == ".toml" else decoded(data)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged, or not the file of a run: {error}") from error
        return fitting(plain, cls, str(path))

    @classmethod
    def of_plain(cls, plain: Any) -> Config:
        """The config in plain data, whose kind of data says what its sections hold, once it is checked."""
        reads = kind.reading(msgspec.convert(plain, _Kind).data.format)
        types = {**get_type_hints(cls), "data": reads.Settings, "model": reads.Model}
        sections: Any = TypedDict("sections", types, total=False)  # type: ignore[misc]
        config = cls(**{"model": reads.Model(), **msgspec.convert(plain, sections)})
        config.check()
        return config

    def check(self) -> None:
        """Raise InputError if a value cannot work, alone or together with the others."""
        reads = kind.of(self)
        for name, section, wanted in (("data", self.data, reads.Settings), ("model", self.model, reads.Model)):
            if type(section) is not wanted:
                raise InputError(
                    f"is of {reads.name}, whose section {name} is a {wanted.__name__}; got a {type(section).__name__}",
                    setting="data.format",
                    value=self.data.format,
                )
        checks.check_types(self)
        checks.check_uses(self, reads.lacks, reads.name)
        m, t, d = self.model, self.train, self.detectors
        tested = not checks.lacking("data.test_fraction", reads.lacks)
        if tested and self.data.valid_fraction + self.data.test_fraction >= 1:
            raise InputError(
                "and data.test_fraction must leave something for training",
                setting="data.valid_fraction",
                value=self.data.valid_fraction,
            )
        if len(m.hidden_size) not in (1, m.num_layers):
            raise InputError(
                f"must hold 1 or {m.num_layers} sizes (model.num_layers)",
                setting="model.hidden_size",
                value=m.hidden_size,
            )
        if t.validation_symbols == 1:
            raise InputError("must be 0, for all, or at least 2; got 1", setting="train.validation_symbols")
        if t.batch_size % t.accumulate:
            raise InputError(
                f"{t.batch_size} must be a multiple of train.accumulate {t.accumulate}", setting="train.batch_size"
            )
        n = m.detectors
        for name, allowed in (("rates", {0, n}), ("bias", {0, min(1, n), n})):
            if len(values := getattr(d, name)) not in allowed:
                raise InputError(
                    f"must hold {' or '.join(map(str, sorted(allowed)))} numbers, the lowest detector first",
                    setting=f"detectors.{name}",
                    value=values,
                )
        reads.check(self)


def _holds_run(path: Path) -> bool:
    """Whether a .json file begins as that of a run does; others hold pen strokes."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(20).split()[:2] == [b"{", b'"data":']


SECTIONS = tuple(field.name for field in dataclasses.fields(Config))
OF_TEXT = (
    "segments", "regularise.shift", "train.length", "train.validation_symbols", "model.ridge", "model.rnn hrnn",
    "detectors.pull_to segments",
)  # fmt: skip
"""What all kinds of data lack that are no text: sections, settings and values of settings."""
