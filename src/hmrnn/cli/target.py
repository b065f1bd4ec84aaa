"""What ``hmrnn train`` and ``hmrnn data`` are asked to read: a preset, or a file and the preset that suits it."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import Any

from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.parse import build, flag, parse, print_help
from hmrnn.config import Config
from hmrnn.config_use import idle, unused
from hmrnn.errors import InputError, did_you_mean
from hmrnn.presets import PRESETS, fit


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
    given = parse(TrainArguments, words, "hmrnn train")
    out = given["out"] = given.get("out") or f"runs/{name}"
    arguments = fit(build(_arguments(config), given), config, given.keys())
    if arguments.resume:  # the flags change the config of the run, not of the preset
        from hmrnn.training.rundir import RunDirectory

        stored = RunDirectory(Path(out)).config()
        if stored.data.format != config.data.format:
            raise InputError(f"the run in {out} reads {stored.data.format}, not {words[0]}; choose another --out")
        if config.data.path:  # the file may have moved
            stored = dataclasses.replace(stored, data=dataclasses.replace(stored.data, path=config.data.path))
        arguments = build(_arguments(stored), given)
    _check_given(arguments.config, given)
    return arguments


def _arguments(config: Config) -> TrainArguments:
    return TrainArguments(*(getattr(config, field.name) for field in dataclasses.fields(Config)))


def _check_given(config: Config, given: dict[str, Any]) -> None:
    """Raise InputError if a flag sets what this network does not have or what has no effect; off is allowed."""
    rnn = config.model.rnn
    lacking = {name: f"is for {what}, not for this {rnn}; leave it out" for name, what in unused(config.model).items()}
    for name, why in (idle(config) | lacking).items():
        value = config.setting(name)
        off = name == "model.layer_norm" and rnn == "ln-lstm"  # which always has it, so only "off" sets something
        if name in given and bool(value) != off:
            part, _, field = name.partition(".")
            raise InputError(f"{flag(f'{part}.no_{field}' if value is False else name)} {why}")
