"""The settings of ``hmrnn train``: those of a preset or of a resumed run, changed by the flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments import TrainArguments, usual
from hmrnn.cli.parse import parse, parser_of
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.config.checks import settings_of
from hmrnn.errors import InputError

PROGRAM, HELP = "hmrnn train", {"-h", "--help"}
OFTEN = {
    "model.hidden_size", "model.num_layers", "train.epochs", "train.batch_size", "train.learning_rate", "train.device",
    "train.seed", "train.start_from", "detectors.rates",
}  # fmt: skip
"""The settings in ``hmrnn train --help``."""


def train_arguments(words: list[str]) -> TrainArguments:
    """The arguments of ``hmrnn train``: those of the preset or of the resumed run, changed by the flags."""
    target = words[0] if words and not words[0].startswith("-") else None
    wants_help = not HELP.isdisjoint(words)
    if target is None and not wants_help:
        raise InputError("hmrnn train needs a file or a preset first, as in hmrnn train book.txt (see its --help)")
    if target is None:
        preset = usual().name
        parser_of(TrainArguments, PROGRAM, TrainArguments(kind.presets()[preset]), only=OFTEN).print_help()
        print("\npresets:")
        for one in kind.every():
            for name in one.presets:
                print(f"  {name:24} {one.notes.get(name, '')}")
        print(f"\nDefaults above are those of {preset}. hmrnn train PRESET --help lists all settings of another.")
        raise SystemExit(0)
    name, config = Config.named(target)
    reads = kind.of(config)
    words = [word for word in words if word not in HELP]
    given = parse(TrainArguments, words, PROGRAM, TrainArguments(config), reads.lacks)
    settings = {name: given.pop(name) for name in list(given) if "." in name}
    if wants_help:
        config = config.changed(settings)
        print(f"Every setting, with the defaults of {target}. hmrnn train --help is shorter.")
        print("With --model.rnn NAME before --help: those of another network.")
        if note := reads.notes.get(target):
            print(f"{target}: {note}")
        unmet = ((one.name, one.unmet(config)) for one in settings_of(Config, config))
        others = (name for name, needed in unmet if needed and needed.setting in ("model.rnn", "model.detectors"))
        parser_of(TrainArguments, PROGRAM, TrainArguments(config), lacks=(*reads.lacks, *others)).print_help()
        raise SystemExit(0)
    config = _with_paths(config, target, given.pop("paths", ()), settings)
    if "train.start_from" in settings and not given.get("resume"):
        config = _from_model(config, settings)
    arguments = TrainArguments(config.changed(settings), **{"out": f"runs/{name}", **given})
    return _resumed(arguments, config, settings) if arguments.resume else arguments


def _resumed(arguments: TrainArguments, config: Config, settings: dict[str, Any]) -> TrainArguments:
    """The arguments with the config of the run in their directory, changed by the flags instead of a preset's."""
    from hmrnn.training.rundir import RunDirectory

    stored = RunDirectory(Path(str(arguments.out))).config()
    for field in dataclasses.fields(config.data):
        name, value = field.name, getattr(config.data, field.name)
        chosen = (name == "format" or value is True) and value != field.default  # by the preset
        if kind.of(stored) is not kind.of(config) or (chosen and getattr(stored.data, name) != value):
            raise InputError(
                f"the run in {arguments.out} does not read data as {arguments.target}; choose another --out",
                setting=f"data.{name}",
                value=value,
            )
    moved = {"data.path": config.data.path} if config.data.path else {}
    return dataclasses.replace(arguments, config=replaced(stored, moved | settings))


def _from_model(config: Config, given: dict[str, Any]) -> Config:
    """The config of a run on the data of ``config`` that starts from a model; InputError if a flag contradicts it."""
    from hmrnn import checkpoint
    from hmrnn.pretrained.finetune import KEPT, check_kept, finetune_config
    from hmrnn.pretrained.load import locate

    source = given["train.start_from"]
    data = replaced(config, {name: given[name] for name in given if name.startswith("data.") and name not in KEPT}).data
    result = finetune_config(checkpoint.read(locate(source)), source, data)
    check_kept(result, given)
    return result


def _with_paths(config: Config, target: str, paths: tuple[str, ...], settings: dict[str, Any]) -> Config:
    """``config`` with the paths that follow the target; InputError if data.path names the data as well."""
    every = (*config.data.path, *paths)
    if (paths or target in every) and "data.path" in settings:
        raise InputError(
            f"{every[0]} names the data already; leave one out", setting="data.path", value=settings["data.path"]
        )
    return replaced(config, {"data.path": every})
