"""What ``hmrnn train`` and ``hmrnn data`` are asked to read: a preset, or a file and the preset that suits it."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path

from hmrnn import kind
from hmrnn.config import Config
from hmrnn.errors import InputError, check_not_root, did_you_mean, no_file


def preset_for(target: str) -> tuple[str, Config]:
    """The name of a run on ``target`` and its config: a preset, or that of the kind of data that the file holds."""
    presets = kind.presets()
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
    preset = presets[_kind(target)]
    data = dataclasses.replace(preset.data, path=(target,))
    return Path(target).resolve().stem, dataclasses.replace(preset, data=data)


def _kind(path: str) -> str:
    """The kind of data that a file or a directory holds, by file names alone."""
    fits = [one.name for one in kind.every() if one.matches(Path(path))]
    if len(fits) != 1:
        names = fits or [one.name for one in kind.every()]
        raise InputError(
            f"the name of {path} does not say whether it holds {', '.join(names[:-1])} or {names[-1]}: name one of "
            f"these before it, as in {names[0]} {shlex.quote(path)}"
        )
    return fits[0]
