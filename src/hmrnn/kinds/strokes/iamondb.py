"""IAM-OnDB, the IAM On-Line Handwriting Database, in the layout of its download: one XML file per line of writing.

Files are recognised by their names, in folders and tar archives of any depth: ``a01-000u-01.xml`` is the first line of
the form a01-000u, ``a01-000u.txt`` the transcript of the form; ``trainset.txt``, ``testset_v.txt``, ``testset_t.txt``
and ``testset_f.txt`` list the forms of the official sets.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.sax
import xml.sax.handler
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import defusedxml
import defusedxml.sax
import numpy as np

from hmrnn.errors import InputError, check_not_root, no_file
from hmrnn.kinds.strokes.strokes import StrokeFile, Strokes, counted, from_arrays
from hmrnn.utils.archives import LARGEST_MEMBER, Report, is_tar, read_tar

SETS = {"trainset": "train", "testset_v": "valid", "testset_f": "test"}
"""The official sets and their use; testset_t, a second validation set, is not used."""
LARGEST_COORDINATE = 16383
"""A step between two points then fits into 16 bits; coordinates of the whiteboard are below 10,000."""

_LINE = re.compile(r"([^.].*)-\d+\.xml")
_SPLIT = re.compile(r"(trainset|testset_[vtf])\.txt")
_TRANSCRIPT = re.compile(r"([a-z]\d+-\d+[a-z]?)\.txt")
_COORDINATE = re.compile(r" *[+-]?[0-9]{1,9} *")
_NUMBER = re.compile(r".*-([0-9]{1,4})")  # of a line within its form
_LONGEST_NAME = 255  # characters, the usual limit of file systems
_BREAK = re.compile("%{4,}")  # separates lines in some transcripts
_MISSING = "Please Enter Transcription here"  # placeholder for a line in some transcripts
_TARS = ("lineStrokes", "ascii", "task")  # how the names of the official archives start

_Line = tuple[np.ndarray, np.ndarray]
"""Points (n, 2) and pen_up (n,) of a line."""


def is_iamondb(path: Path) -> bool:
    """Whether a file or a folder holds lines of IAM-OnDB, and no texts but transcripts and official sets, by names."""
    found = [p.name for p in path.rglob("*")] if path.is_dir() else [path.name]
    lines = any(_LINE.fullmatch(name) or (is_tar(Path(name)) and name.startswith(_TARS[0])) for name in found)
    return lines and all(_kind(name) for name in found if name.endswith(".txt"))


@dataclasses.dataclass
class _Found:
    """The transcripts and official sets read so far, and the files that were skipped."""

    words: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """The words of each file, to tell whether a second file of that name differs."""
    transcripts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    sets: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: list[str] = dataclasses.field(default_factory=list)

    def skip(self, where: str, why: str) -> None:
        half = _LONGEST_NAME
        shown = where if len(where) <= 2 * half else f"{where[:half]}...{where[-half:]}"
        self.skipped.append(f"{_printable(shown)}: {why}")


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The files to read, those in folders included. Archives of a folder come last: unpacked files take precedence."""
    files: list[Path] = []
    for path in paths:
        check_not_root(path)
        if path.is_dir():
            inside = sorted(path.rglob("*"))
            files += [p for p in inside if _kind(p.name)]
            files += [p for p in inside if is_tar(p) and p.name.startswith(_TARS)]
        elif not path.is_file():
            raise no_file(path, what="file or folder")
        elif not is_tar(path) and not _kind(path.name):
            raise InputError(
                f"{path}: IAM-OnDB is read from a folder, tar archives (lineStrokes-all.tar.gz, ascii-all.tar.gz), "
                "trainset.txt and testset_*.txt, or one .npz archive"
            )
        else:
            files.append(path)
    return files


def read_iamondb(sources: Sequence[Path], report: Report) -> StrokeFile:
    """All lines of these files, sorted by name. Damaged and empty files are skipped and listed.

    Of several files with one name the first is used; the others are listed as skipped if they differ from it.
    """
    found = _Found()
    lines: dict[str, _Line] = {}
    for where, content in itertools.chain.from_iterable(_files(path, report) for path in sources):
        name = where.rsplit("/", 1)[-1]
        if isinstance(content, bytes) and len(name) > _LONGEST_NAME:
            content = f"its name has more than {_LONGEST_NAME} characters"
        if isinstance(content, bytes) and _kind(name) != "line":
            _add(where, content, found)
            continue
        line = _parse(content)
        if isinstance(line, str):
            found.skip(where, line)
        elif not all(map(np.array_equal, lines.setdefault(_printable(name.removesuffix(".xml")), line), line)):
            found.skip(where, "there is another line of this name")
    source = str(sources[0]) if len(sources) == 1 else f"{len(sources)} files"
    if not lines:
        skipped = counted(len(found.skipped), "file")
        first = f"; {skipped} skipped, first {found.skipped[0]}" if found.skipped else ""
        raise InputError(
            f"there is no line of IAM-OnDB in {source}; line files have names like a01-000u-01.xml, "
            f"in the folder lineStrokes or in lineStrokes-all.tar.gz{first}"
        )
    names = sorted(lines)
    points = [lines[name][0] for name in names]
    pen_up = np.concatenate([lines[name][1] for name in names])
    offsets = np.cumsum([0, *map(len, points)])
    texts = [_text(name, found.transcripts) for name in names]
    known = texts if any(texts) else None
    strokes = from_arrays(np.concatenate(points), pen_up, offsets, names, known, source, points=True)
    split = tuple(found.sets.get(_form(name), "none") for name in names) if found.sets else None
    return StrokeFile(strokes, split, tuple(found.skipped))


def read_line(path: Path) -> Strokes:
    """The strokes of one line file."""
    line = _parse(_content(path))
    if isinstance(line, str):
        raise InputError(f"{path}: {line}")
    points, pen_up = line
    return from_arrays(points, pen_up, np.array([0, len(points)]), [path.stem], None, str(path), points=True)


def _kind(name: str) -> str | None:
    """What a file of this name holds: "line", "split", "transcript", or None if it is not part of IAM-OnDB."""
    for kind, pattern in (("line", _LINE), ("split", _SPLIT), ("transcript", _TRANSCRIPT)):
        if pattern.fullmatch(name):
            return kind
    return None


def _printable(name: str) -> str:
    """A file name, which may hold any characters, on one line of printable ones."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _form(line: str) -> str:
    return line.rsplit("-", 1)[0]


def _files(path: Path, report: Report) -> Iterator[tuple[str, bytes | str]]:
    """Path and content of a file, or of each file of IAM-OnDB in an archive; or why it cannot be read."""
    if is_tar(path):
        for name, content in read_tar(path, lambda name: bool(_kind(name.rsplit("/", 1)[-1])), report):
            yield f"{path.name}/{name}", content
    else:
        content = _content(path)
        report(len(content) if isinstance(content, bytes) else 0)
        yield str(path), content


def _add(where: str, content: bytes, found: _Found) -> None:
    """Read a transcript or an official set."""
    name = where.rsplit("/", 1)[-1]
    text = content.decode("utf-8", "replace")
    if name in found.words:
        if found.words[name] != text.split():
            found.skip(where, "there is another file of this name with other words")
        return
    found.words[name] = text.split()
    if _SPLIT.fullmatch(name):
        found.sets.update((form, name.removesuffix(".txt")) for form in text.split())
    else:
        # The recognised text comes first; the correct one follows the heading CSR, one line per line of the form.
        _, _, correct = text.partition("CSR:")
        lines = [line for line in map(str.strip, _BREAK.sub("\n", correct).splitlines()) if line]
        found.transcripts[name.removesuffix(".txt")] = ["" if line == _MISSING else line for line in lines]


def _text(line: str, transcripts: dict[str, list[str]]) -> str:
    """The text of a line; "" if it has no transcript."""
    lines = transcripts.get(_form(line), [])
    match = _NUMBER.fullmatch(line)
    number = int(match[1]) if match else 0
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _content(path: Path) -> bytes | str:
    """The content of a file, or why it cannot be read."""
    try:
        if not path.is_file():
            return "it is not a regular file"
        with open(path, "rb") as file:
            content = file.read(LARGEST_MEMBER + 1)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return content if len(content) <= LARGEST_MEMBER else f"it has more than {LARGEST_MEMBER:,} bytes"


def _parse(content: bytes | str) -> _Line | str:
    """The points and pen_up of a line file, or why it has none."""
    if isinstance(content, str):
        return content
    if not content.strip():
        return "it is empty"
    handler = _Handler()
    try:
        defusedxml.sax.parseString(content, handler, forbid_dtd=True)
    except defusedxml.DefusedXmlException:
        return "it declares a document type or entities, which line files do not have"
    except xml.sax.SAXParseException as error:
        return f"it is not XML: {error.getMessage()} in line {error.getLineNumber()}"
    except (InputError, UnicodeError, LookupError) as error:
        return str(error)
    if not handler.points:
        return "it has no points"
    pen_up = np.zeros(len(handler.points), np.uint8)
    pen_up[np.array(handler.ends) - 1] = 1
    return np.array(handler.points, np.int32), pen_up


class _Handler(xml.sax.handler.ContentHandler):
    """Collects the points, and the number of points before each end of a stroke."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, int]] = []
        self.ends: list[int] = []
        self.inside = False

    def startElement(self, name: str, attrs: Any) -> None:
        if name == "Stroke":
            self.inside = True
        elif name == "Point":
            if not self.inside:
                raise InputError("it has a Point outside a Stroke")
            self.points.append((self._coordinate(attrs, "x"), self._coordinate(attrs, "y")))

    def endElement(self, name: str) -> None:
        if name == "Stroke":
            self.inside = False
            if self.points and self.ends[-1:] != [len(self.points)]:
                self.ends.append(len(self.points))

    def _coordinate(self, attrs: Any, axis: str) -> int:
        text = attrs.get(axis)
        value = int(text) if text is not None and _COORDINATE.fullmatch(text) else None
        if value is None or abs(value) > LARGEST_COORDINATE:
            got = "none" if text is None else repr(text[:40])
            raise InputError(
                f"point {len(self.points) + 1} needs an integer up to {LARGEST_COORDINATE} as its {axis}; got {got}"
            )
        return value
