"""A command that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tiny

FLAGS = tiny.flags(tiny.config(epochs=1, batch_size=16, length=10))
BEST, LAST = "runs/story/best-00000005", "runs/story/last-00000005"
Complaint = Callable[[str], str]
"""Runs a line that must be refused and change nothing; what it said."""


def tree(directory: Path) -> dict[str, bytes | None]:
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}
