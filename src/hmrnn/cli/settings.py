"""The settings of ``hmrnn train``: those of a preset or of a resumed run, changed by the flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.parse import parse, print_help
from hmrnn.config import Config
from hmrnn.config.changes import fit, replaced
from hmrnn.config.checks import settings_of
from hmrnn.errors import InputError

HELP = {"-h", "--help"}
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
        print_help(TrainArguments, "hmrnn train", kind.presets()["text"], only=OFTEN)
        print("\npresets:")
        for one in kind.every():
            for preset in one.presets:
                print(f"  {preset:24} {one.notes.get(preset, '')}")
        print("\nDefaults above are those of text. hmrnn train PRESET --help lists all settings of another.")
        raise SystemExit(0)
    name, config = Config.named(target)
    reads = kind.of(config)
    given = parse(TrainArguments, [word for word in words if word not in HELP], "hmrnn train", config, reads.lacks)
    if wants_help:
        config = config.changed({name: value for name, value in given.items() if "." in name})
        print(f"Every setting, with the defaults of {target}. hmrnn train --help is shorter.")
        print("With --model.rnn NAME before --help: those of another network.")
        if note := reads.notes.get(target):
            print(f"{target}: {note}")
        unmet = ((one.name, one.unmet(config)) for one in settings_of(Config, config))
        others = (name for name, needed in unmet if needed and needed.setting in ("model.rnn", "model.detectors"))
        print_help(TrainArguments, "hmrnn train", config, lacks=(*reads.lacks, *others))
        raise SystemExit(0)
    config = _with_paths(config, target, given)
    if "train.start_from" in given and not given.get("resume"):
        config = _from_model(config, given)
    out = given["out"] = given.get("out") or f"runs/{name}"
    arguments = fit(replaced(_arguments(config), given), config, given)
    if arguments.resume:  # the flags change the config of the run, not of the preset
        from hmrnn.training.rundir import RunDirectory

        stored = RunDirectory(Path(out)).config()
        for field in dataclasses.fields(config.data):
            name, value = field.name, getattr(config.data, field.name)
            chosen = (name == "format" or value is True) and value != field.default  # by the preset
            if kind.of(stored) is not kind.of(config) or (chosen and getattr(stored.data, name) != value):
                raise InputError(
                    f"the run in {out} does not read data as {target}; choose another --out",
                    setting=f"data.{name}",
                    value=value,
                )
        if config.data.path:  # the file may have moved
            stored = replaced(stored, {"data.path": config.data.path})
        arguments = replaced(_arguments(stored), given)
    return arguments


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


def _with_paths(config: Config, target: str, given: dict[str, Any]) -> Config:
    """``config`` with the paths that follow the target; InputError if data.path names the data as well."""
    paths = (*config.data.path, *given.pop("paths", ()))
    if (paths != config.data.path or target in paths) and "data.path" in given:
        raise InputError(
            f"{paths[0]} names the data already; leave one out", setting="data.path", value=given["data.path"]
        )
    return replaced(config, {"data.path": paths})


def _arguments(config: Config) -> TrainArguments:
    return TrainArguments(*(getattr(config, field.name) for field in dataclasses.fields(Config)))
