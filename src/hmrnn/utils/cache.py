"""The cache of corpora: where entries are, and the names that tell whether an entry is up to date."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from hmrnn.errors import InputError

SourceState = list[tuple[str, int, int]]


def folder(given: str | None) -> Path:
    """The directory of the entries: the one given (data.cache), else $HMRNN_CACHE, else ~/.cache/hmrnn."""
    return Path(given or os.environ.get("HMRNN_CACHE") or "~/.cache/hmrnn").expanduser()


def entry_names(key: object, version: int, state: SourceState) -> tuple[str, str]:
    """The prefix of all entries of a corpus, and the name of the entry for the given state of its sources.

    ``key`` is what was asked for; ``version`` is increased when the format of entries changes.
    """
    prefix = f"{_digest(key)}-"
    return prefix, prefix + _digest([version, state])


def source_state(sources: Iterable[Path]) -> SourceState:
    """Path, size and modification time of each source; (path, 0, -1) if it cannot be accessed.

    Whoever reads such a source reports the error.
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
    """The size of all sources in bytes."""
    return sum(size for _, size, _ in state)


def unusable(cache: Path, error: OSError) -> InputError:
    """The error for a cache that cannot be read or written."""
    return InputError(
        f"{cache} cannot be used ({error.strerror or error}); give a writable directory, here or as HMRNN_CACHE",
        setting="data.cache",
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
