"""The models bundled with the package: a directory each, which holds a checkpoint and a card (README.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hmrnn.errors import InputError, did_you_mean, no_file
from hmrnn.utils import hub

FOLDER = Path(__file__).parent
DEFAULT = "english-small"
"""The model of commands that are given none."""


def names() -> list[str]:
    """The names of the bundled models, the default first."""
    found = (path.parent.name for path in FOLDER.glob("*/manifest.json"))
    return sorted(found, key=lambda name: (name != DEFAULT, name))


def comes_with_corpus(name: str) -> bool:
    """Whether the corpus of a bundled model is built in; others were trained on files, which are not in the package."""
    return not json.loads((FOLDER / name / "config.json").read_bytes())["data"]["path"]


def find(source: str | Path) -> Path:
    """The directory of a bundled model or of one on the Hub, or a path; InputError if it does not exist."""
    own = names()
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"a model must be the path of a directory or the name of a bundled model ({', '.join(own)}); got {source!r}"
        )
    if isinstance(source, str) and source in own:
        return FOLDER / source
    if isinstance(source, str) and source.startswith(hub.SCHEME):
        from hmrnn.checkpoint import MODEL

        return hub.download(source, MODEL)
    path = Path(os.path.expanduser(source))
    if os.path.exists(path):  # Path.exists raises an error if the name is too long
        return path
    if os.path.islink(path):
        raise no_file(path, what="model")
    hint = did_you_mean(str(source), own if isinstance(source, str) else (), files=True)
    raise InputError(
        f"no checkpoint at {source}: expected a run directory, a checkpoint directory or the name of a bundled model "
        f"({', '.join(own) or 'none is installed'}){hint}"
    )
