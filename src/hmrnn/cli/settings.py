"""The settings of ``hmrnn train``: those of a preset or of a resumed run, changed by the flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from hmrnn import kind
from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.parse import build, parse, print_help
from hmrnn.cli.target import preset_for
from hmrnn.config import Config, DetectorConfig, RegulariseConfig
from hmrnn.config.checks import check_types
from hmrnn.errors import InputError

C = TypeVar("C", bound=Config)
OFTEN = {
    "model.hidden_size", "model.num_layers", "train.epochs", "train.batch_size", "train.learning_rate", "train.device",
    "train.seed", "train.start_from", "detectors.rates",
}  # fmt: skip
"""The settings in ``hmrnn train --help``."""


def train_arguments(words: list[str]) -> TrainArguments:
    """The arguments of ``hmrnn train``: those of the preset or of the resumed run, changed by the flags."""
    target = words[0] if words and not words[0].startswith("-") else None
    wants_help = not {"-h", "--help"}.isdisjoint(words)
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
    name, config = preset_for(target)
    if wants_help:
        print(f"Every setting, with the defaults of {target}. hmrnn train --help is shorter.")
        if note := kind.of(config).notes.get(target):
            print(f"{target}: {note}")
        print_help(TrainArguments, "hmrnn train", config, lacks=kind.of(config).lacks)
        raise SystemExit(0)
    given = parse(TrainArguments, words, "hmrnn train", config, kind.of(config).lacks)
    config = _with_paths(config, given)
    if "train.start_from" in given and not given.get("resume"):
        config = _from_model(config, given)
    out = given["out"] = given.get("out") or f"runs/{name}"
    arguments = fit(build(_arguments(config), given), config)
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
            stored = dataclasses.replace(stored, data=dataclasses.replace(stored.data, path=config.data.path))
        arguments = build(_arguments(stored), given)
    return arguments


def _from_model(config: Config, given: dict[str, Any]) -> Config:
    """The config of a run on the data of ``config`` that starts from a model; InputError if a flag contradicts it."""
    from hmrnn import checkpoint
    from hmrnn.pretrained.finetune import KEPT, check_kept, finetune_config
    from hmrnn.pretrained.load import locate

    source = given["train.start_from"]
    data = build(config, {name: given[name] for name in given if name.startswith("data.") and name not in KEPT}).data
    result = finetune_config(checkpoint.read(locate(source)), source, data)
    check_kept(result, given)
    return result


def _with_paths(config: Config, given: dict[str, Any]) -> Config:
    """``config`` with the paths that follow the target; InputError if data.path names the data as well."""
    paths = (*config.data.path, *given.pop("paths", ()))
    if paths and "data.path" in given:
        raise InputError(
            f"{paths[0]} names the data already; leave one out", setting="data.path", value=given["data.path"]
        )
    return dataclasses.replace(config, data=dataclasses.replace(config.data, path=paths))


def _arguments(config: Config) -> TrainArguments:
    return TrainArguments(*(getattr(config, field.name) for field in dataclasses.fields(Config)))


def fit(config: C, preset: Config) -> C:
    """``config``, which was made from ``preset`` by flags, with sizes and detector settings that suit its network.

    Of the sizes of a preset, fewer layers take the first, and more repeat the last. Its rates are for the two detectors
    of three layers: fewer layers take the first of them, more continue in the ratio of the last two, and a network that
    finds no boundaries has neither rates nor pulls. A reservoir has no matrices of gates to train, so Adam takes the
    place of a preset's Muon. InputError if a flag sets detectors of a network that has none.
    """
    check_types(config)  # sizes of more layers than there can be would fill the memory
    sizes = preset.model.hidden_size
    if config.model.hidden_size == sizes and len(sizes) not in (1, config.model.num_layers):
        sizes = (*sizes, *sizes[-1:] * config.model.num_layers)[: max(config.model.num_layers, 1)]
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_size=sizes))
    model, detectors, given = config.model, config.detectors, preset.detectors
    if model.rnn == "echo-state" and config.train.optimizer == preset.train.optimizer:
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, optimizer="adam", adam_rate=1.0))
    if model.ridge:
        config = _in_one_pass(config, preset)
    if model.detectors == 0:
        for field in dataclasses.fields(detectors):
            if getattr(detectors, field.name) != getattr(given, field.name):
                raise InputError(
                    f"{model.rnn} with model.num_layers {model.num_layers} has no detectors; leave it out",
                    setting=f"detectors.{field.name}",
                )
        return dataclasses.replace(config, detectors=DetectorConfig())
    rates = detectors.rates
    if rates == given.rates:
        rates = _as_many(rates, model.detectors if model.rnn == "hm-lstm" else 0)
    off: dict[str, Any] = (
        {"start_at_rates": False, "rate_control": 0.0, "pull_weight": 0.0} if given.rates and not rates else {}
    )
    off = {name: value for name, value in off.items() if getattr(detectors, name) == getattr(given, name)}
    return dataclasses.replace(config, detectors=dataclasses.replace(detectors, rates=rates, **off))


def _in_one_pass(config: C, preset: Config) -> C:
    """``config`` without the epochs and the regularisation of the preset, which ridge regression does not have."""
    epochs = config.train.epochs if config.train.epochs != preset.train.epochs else 1
    off = RegulariseConfig()
    kept = {
        field.name: getattr(off, field.name)
        for field in dataclasses.fields(off)
        if getattr(config.regularise, field.name) == getattr(preset.regularise, field.name)
    }
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, epochs=epochs),
        regularise=dataclasses.replace(config.regularise, **kept),
    )


def _as_many(rates: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The first ``count`` rates; missing ones continue in the ratio of the last two, a single one by quarters."""
    if not rates:
        return ()
    ratio = rates[-1] / rates[-2] if len(rates) > 1 else 0.25
    further = (round(rates[-1] * ratio**k, 4) for k in range(1, count - len(rates) + 1))
    return (*rates[:count], *further)
