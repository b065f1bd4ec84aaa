"""What every kind of data asks about its data."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from msgspec import Meta

SPLITS = ("train", "valid", "test")
"""The parts of a corpus."""
Part = Annotated[float, Meta(gt=0, lt=1)]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data to read; a kind of data adds settings of its own."""

    format: str
    """What the files hold."""
    path: tuple[str, ...] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    valid_fraction: Part = 0.05
    """Share of the data for validation. Not used by formats that come with a split."""
    test_fraction: Part = 0.05
    """Share of the data for the test, after the validation part."""
