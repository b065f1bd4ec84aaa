"""What ``hmrnn train`` and ``hmrnn data`` are asked to read: a preset, or a file and the preset that suits it."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import Any, TypeVar

from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.parse import build, parse, print_help
from hmrnn.config import OLD_NAMES, Config, DetectorConfig
from hmrnn.errors import InputError, did_you_mean
from hmrnn.presets import PRESETS

C = TypeVar("C", bound=Config)


def preset_for(target: str) -> tuple[str, Config]:
    """The name of a run on ``target`` and its config: a preset, or the one for text or strokes with this file."""
    if target in PRESETS:
        return target, PRESETS[target]
    if not os.path.exists(target):
        raise InputError(
            f"{target!r} is neither a preset ({', '.join(PRESETS)}) nor a file or directory that exists"
            f"{did_you_mean(target, PRESETS, files=True)}"
        )
    preset = PRESETS[_kind(target)]
    data = dataclasses.replace(preset.data, path=(target,))
    return Path(target).resolve().stem, dataclasses.replace(preset, data=data)


def _kind(path: str) -> str:
    """What a file or a directory holds, by file names alone: "text" or "strokes"."""
    from hmrnn.data.strokes.iamondb import is_iamondb

    names = [path] if not os.path.isdir(path) else [name for _, _, found in os.walk(path) for name in found]
    endings = {Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix for name in names}
    if ".npz" in endings or (os.path.isdir(path) and endings & {".json", ".csv"} and ".txt" not in endings):
        return "strokes"
    if endings & {".json", ".csv"} and not os.path.isdir(path):
        raise InputError(
            f"{path} may hold strokes or text: write strokes or text in its place, and the file after --data.path "
            "(of hmrnn data: --path); other time series are for hmrnn.HMSegmenter, in Python"
        )
    if os.path.isdir(path) and is_iamondb(names):
        raise InputError(
            f"{path} holds lines of IAM-OnDB; read them with hmrnn train iamondb --data.path {shlex.quote(path)} "
            f"(or hmrnn data iamondb --path {shlex.quote(path)})"
        )
    return "text"


def train_arguments(words: list[str]) -> TrainArguments:
    """The arguments of ``hmrnn train``: those of the preset or of the resumed run, changed by the flags."""
    if words and words[0] in ("-h", "--help"):
        print(
            "The options of hmrnn train, with the defaults of the preset ptb. Presets:", ", ".join(PRESETS), end="\n\n"
        )
        print_help(TrainArguments, "hmrnn train", PRESETS["ptb"])
        raise SystemExit(0)
    if not words or words[0].startswith("-"):
        raise InputError(
            f"hmrnn train needs a preset ({', '.join(PRESETS)}) or a file of text or strokes as its first argument"
        )
    name, config = preset_for(words[0])
    given = parse(TrainArguments, words, "hmrnn train", OLD_NAMES)
    out = given["out"] = given.get("out") or f"runs/{name}"
    arguments = fit(build(_arguments(config), given), config)
    if arguments.resume:  # the flags change the config of the run, not of the preset
        from hmrnn.training.rundir import RunDirectory

        stored = RunDirectory(Path(out)).config()
        if stored.data.format != config.data.format:
            raise InputError(f"the run in {out} reads {stored.data.format}, not {words[0]}; choose another --out")
        if config.data.path:  # the file may have moved
            stored = dataclasses.replace(stored, data=dataclasses.replace(stored.data, path=config.data.path))
        arguments = build(_arguments(stored), given)
    return arguments


def _arguments(config: Config) -> TrainArguments:
    return TrainArguments(*(getattr(config, field.name) for field in dataclasses.fields(Config)))


def fit(config: C, preset: Config) -> C:
    """``config``, which was made from ``preset`` by flags, with detector settings that suit its network.

    The rates of a preset are for the two detectors of three layers. Fewer layers take the first of them, more continue
    in the ratio of the last two, and a network that finds no boundaries has neither rates nor pulls. InputError if a
    flag sets detectors of a network that has none.
    """
    model, detectors, given = config.model, config.detectors, preset.detectors
    if model.detectors == 0:
        for field in dataclasses.fields(detectors):
            if getattr(detectors, field.name) != getattr(given, field.name):
                raise InputError(
                    f"detectors.{field.name} is for networks with detectors, which {model.rnn} with {model.num_layers} "
                    "layers has not; leave it out"
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


def _as_many(rates: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The first ``count`` rates; missing ones continue in the ratio of the last two."""
    if not rates:
        return ()
    ratio = rates[-1] / rates[-2]
    further = (round(rates[-1] * ratio**k, 4) for k in range(1, count - len(rates) + 1))
    return (*rates[:count], *further)
