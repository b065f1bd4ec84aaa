"""The models that come with the package: a folder each, a checkpoint with a card (README.md), loaded by its name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
DEFAULT = "english-small"
"""What commands use where no model is named."""


def names() -> list[str]:
    """The names that :func:`hmrnn.load` knows."""
    return sorted(path.parent.name for path in FOLDER.glob("*/manifest.json"))
