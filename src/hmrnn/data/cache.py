"""Where corpora that have been read are kept, and what tells whether an entry is still the right one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from hmrnn.config import DataConfig
from hmrnn.errors import InputError

SourceState = list[tuple[str, int, int]]


def folder(config: DataConfig) -> Path:
    """Where the entries are: as the config says, else the environment, else a place in the home directory."""
    return Path(config.cache or os.environ.get("HMRNN_CACHE") or "~/.cache/hmrnn").expanduser()


def entry_names(key: object, version: int, state: SourceState) -> tuple[str, str]:
    """How the names of all entries of a corpus begin, and the name of the one for this state of its sources.

    ``key`` is what was asked for; ``version`` goes up when entries are written in another way.
    """
    prefix = f"{_digest(key)}-"
    return prefix, prefix + _digest([version, state])


def source_state(sources: Iterable[Path]) -> SourceState:
    """What changes when a source does: path, size and time of the last change; of one out of reach, its path alone.

    Whoever reads such a source says so, or passes it over.
    """
    state = []
    for path in sources:
        try:
            stat = path.stat()
            size, changed = stat.st_size, stat.st_mtime_ns
        except OSError:
            size, changed = 0, -1
        state.append((os.path.abspath(path), size, changed))
    return state


def total_size(state: SourceState) -> int:
    """Bytes of all sources."""
    return sum(size for _, size, _ in state)


def unusable(cache: Path, error: OSError) -> InputError:
    """What to say where the folder cannot be read or written."""
    return InputError(
        f"the corpus cache {cache} cannot be used ({error.strerror or error}); "
        "set HMRNN_CACHE or --data.cache to a directory that can be written"
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
