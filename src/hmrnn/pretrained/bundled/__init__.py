"""The models that come with the package: a folder each, a checkpoint with a card (README.md), loaded by its name."""

from __future__ import annotations

import os
from pathlib import Path

from hmrnn.errors import InputError, did_you_mean

FOLDER = Path(__file__).parent
DEFAULT = "english-small"
"""What commands use where no model is named."""
HANDWRITING = "handwriting-small"
"""The one of pen strokes, which the page offers beside the other. Its lines are built in, so it has its corpus."""


def names() -> list[str]:
    """The names that :func:`hmrnn.load` knows."""
    return sorted(path.parent.name for path in FOLDER.glob("*/manifest.json"))


def find(source: str | Path) -> Path:
    """The directory that a name or a path means; InputError, with the nearest name there is, if it does not exist."""
    own = names()
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"a model is named by the path of its directory, or it is one that comes with hmrnn ({', '.join(own)}); "
            f"got {source!r}"
        )
    if isinstance(source, str) and source in own:
        return FOLDER / source
    path = Path(os.path.expanduser(source))
    if os.path.exists(path):  # not Path.exists, which fails where a name is too long for any file
        return path
    hint = did_you_mean(str(source), own if isinstance(source, str) else (), files=True)
    raise InputError(
        f"no checkpoint at {source}: expected a run directory or a checkpoint directory, or the name of a model that "
        f"comes with hmrnn ({', '.join(own) or 'none is installed'}){hint}"
    )
