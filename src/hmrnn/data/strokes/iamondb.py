"""IAM-OnDB, the IAM On-Line Handwriting Database, as its users receive it: one XML file per line of writing.

What is found in a folder or a tar archive is told by its name alone, wherever it lies: ``a01-000u-01.xml`` is a line
(the first of the form a01-000u), ``a01-000u.txt`` the transcript of a form, ``trainset.txt``, ``testset_v.txt``,
``testset_t.txt`` and ``testset_f.txt`` name the forms of the official sets.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import re
import xml.sax
import xml.sax.handler
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import defusedxml
import defusedxml.sax
import numpy as np

from hmrnn.data.archives import LARGEST_MEMBER, is_tar, read_tar
from hmrnn.data.strokes.strokes import StrokeFile, Strokes, checked, counted
from hmrnn.data.text.sources import Report
from hmrnn.errors import InputError

SETS = {"trainset": "train", "testset_v": "valid", "testset_f": "test"}
"""The official sets and what they are used for; testset_t, a second validation set, is left out."""
LARGEST_COORDINATE = 16383
"""A step between two points then fits into 16 bits; the whiteboard's own coordinates stay under 10,000."""

_LINE = re.compile(r"([^.].*)-\d+\.xml")
_SPLIT = re.compile(r"(trainset|testset_[vtf])\.txt")
_TRANSCRIPT = re.compile(r"([a-z]\d+-\d+[a-z]?)\.txt")
_COORDINATE = re.compile(r" *[+-]?[0-9]{1,9} *")
_NUMBER = re.compile(r".*-([0-9]{1,4})")  # of a line within its form
_LONGEST_NAME = 255  # characters, as on a disk
_BREAK = re.compile("%{4,}")  # stands between lines in some transcripts
_NOT_YET = "Please Enter Transcription here"  # stands in place of a line in others
_TARS = ("lineStrokes", "ascii", "task")  # what the archives of the official download begin with
_BATCH = 64  # files that a worker parses at a time
_FEW = 8  # fewer batches are parsed faster than workers start


def is_iamondb(names: Iterable[str]) -> bool:
    """Whether files of these names are lines of IAM-OnDB, with no texts but transcripts and official sets."""
    found = list(names)
    lines = any(_LINE.fullmatch(name) or (is_tar(Path(name)) and name.startswith(_TARS[0])) for name in found)
    texts = (name for name in found if name.endswith(".txt"))
    return lines and all(_SPLIT.fullmatch(name) or _TRANSCRIPT.fullmatch(name) for name in texts)


_Line = tuple[np.ndarray, np.ndarray]
_Job = tuple[str, "bytes | Path"]


@dataclasses.dataclass
class _Found:
    """What the sources hold beside the lines, and what could not be read."""

    words: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Of each transcript and official set taken, to tell whether another of its name is the same."""
    transcripts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    sets: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: list[str] = dataclasses.field(default_factory=list)

    def skip(self, where: str, why: str) -> None:
        half = _LONGEST_NAME
        shown = where if len(where) <= 2 * half else f"{where[:half]}...{where[-half:]}"
        self.skipped.append(f"{_printable(shown)}: {why}")


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The files to read, folders unfolded; archives come last, so that what lies beside them unpacked counts."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.is_file():
                raise InputError(f"there is no file or folder {path}, or it is out of reach; check the path")
            if not is_tar(path) and not _kind(path.name):
                raise InputError(
                    f"{path}: IAM-OnDB is read from a folder, tar archives (lineStrokes-all.tar.gz, ascii-all.tar.gz), "
                    "trainset.txt and testset_*.txt, or one .npz archive"
                )
            files.append(path)
            continue
        inside = sorted(path.rglob("*"))
        files += [p for p in inside if _kind(p.name)]
        files += [p for p in inside if is_tar(p) and p.name.startswith(_TARS)]
    return files


def read_iamondb(sources: Sequence[Path], report: Report) -> StrokeFile:
    """All lines of these files, sorted by name; a file that is broken or empty is skipped and reported.

    What is there twice counts once, the first of that name; it is reported where the two differ.
    """
    found = _Found()
    names: dict[str, _Line] = {}
    for name, line in _parsed(_jobs(sources, found, report)):
        stem = _printable(name.rsplit("/", 1)[-1].removesuffix(".xml"))
        if isinstance(line, str):
            found.skip(name, line)
        elif not all(map(np.array_equal, names.setdefault(stem, line), line)):
            found.skip(name, "there is another line of this name")
    if not names:
        skipped = counted(len(found.skipped), "file")
        first = f"; {skipped} skipped, first {found.skipped[0]}" if found.skipped else ""
        raise InputError(
            f"there is no line of IAM-OnDB in {_listed(sources)}; they are called like a01-000u-01.xml, "
            f"in the folder lineStrokes or in lineStrokes-all.tar.gz{first}"
        )
    ordered = sorted(names)
    points = [names[name][0] for name in ordered]
    offsets = np.cumsum([0, *map(len, points)])
    start = np.stack([line[0] for line in points])
    moves = np.concatenate([np.diff(line, axis=0, prepend=line[:1]) for line in points])
    pen_up = np.concatenate([names[name][1] for name in ordered])
    texts = [_text(name, found.transcripts) for name in ordered]
    strokes = checked(moves, pen_up, offsets, ordered, texts if any(texts) else None, _listed(sources))
    split = tuple(found.sets.get(_form(name), "none") for name in ordered) if found.sets else None
    return StrokeFile(strokes, split, start.astype(np.int16), tuple(found.skipped))


def read_line(path: Path) -> Strokes:
    """One line file."""
    line = _parse((str(path), path))
    if isinstance(line, str):
        raise InputError(f"{path}: {line}")
    moves = np.diff(line[0], axis=0, prepend=line[0][:1])
    return checked(moves, line[1], np.array([0, len(moves)]), [path.stem], None, str(path))


def _kind(name: str) -> str | None:
    for kind, pattern in (("line", _LINE), ("split", _SPLIT), ("transcript", _TRANSCRIPT)):
        if pattern.fullmatch(name):
            return kind
    return None


def _printable(name: str) -> str:
    """A name from a disk or an archive, which may hold anything, on one line of UTF-8."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _form(line: str) -> str:
    return line.rsplit("-", 1)[0]


def _listed(sources: Sequence[Path]) -> str:
    return str(sources[0]) if len(sources) == 1 else f"{len(sources)} files"


def _jobs(sources: Iterable[Path], found: _Found, report: Report) -> Iterator[_Job]:
    """The line files, as paths where they lie on disk and else as bytes; what else there is goes to ``found``."""
    for path in sources:
        if is_tar(path):
            for name, content in read_tar(path, lambda name: bool(_kind(name.rsplit("/", 1)[-1])), report):
                where = f"{path.name}/{name}"
                if isinstance(content, str):
                    found.skip(where, content)
                elif len(name.rsplit("/", 1)[-1]) > _LONGEST_NAME:
                    found.skip(where, f"its name has more than {_LONGEST_NAME} characters")
                elif _kind(name.rsplit("/", 1)[-1]) == "line":
                    yield where, content
                else:
                    _note(where, content, found)
        elif _kind(path.name) == "line":
            yield str(path), path
            report(_size(path))
        else:
            content = _content(path)
            if isinstance(content, str):
                found.skip(str(path), content)
            else:
                _note(str(path), content, found)
                report(len(content))


def _note(where: str, content: bytes, found: _Found) -> None:
    """Take a transcript or an official set."""
    name = where.rsplit("/", 1)[-1]
    text = content.decode("utf-8", "replace")
    if name in found.words:
        if found.words[name] != text.split():
            found.skip(where, "there is another file of this name, which says something else")
        return
    found.words[name] = text.split()
    if _SPLIT.fullmatch(name):
        found.sets.update((form, name.removesuffix(".txt")) for form in text.split())
    else:
        # After the recognised text comes the correct one, under the heading CSR: a line per line of the form.
        _, _, correct = text.partition("CSR:")
        lines = [line for line in map(str.strip, _BREAK.sub("\n", correct).splitlines()) if line]
        found.transcripts[name.removesuffix(".txt")] = ["" if line == _NOT_YET else line for line in lines]


def _text(line: str, transcripts: dict[str, list[str]]) -> str:
    """What a line says; "" if there is no transcript of it."""
    lines = transcripts.get(_form(line), [])
    match = _NUMBER.fullmatch(line)
    number = int(match[1]) if match else 0
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _size(path: Path) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # it is reported as skipped where it is read
        return 0


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


def _parsed(jobs: Iterator[_Job]) -> Iterator[tuple[str, _Line | str]]:
    """Each line file with its points, in order; several processes share the work where there is much."""
    batches = iter(lambda: list(itertools.islice(jobs, _BATCH)), [])
    first = list(itertools.islice(batches, _FEW))
    batches = itertools.chain(first, batches)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if len(first) < _FEW or cores == 1:
        return itertools.chain.from_iterable(map(_parse_all, batches))
    return _shared(batches, min(cores, 8))


def _shared(batches: Iterator[list[_Job]], workers: int) -> Iterator[tuple[str, _Line | str]]:
    context = multiprocessing.get_context("spawn")
    waiting: collections.deque[concurrent.futures.Future[list[tuple[str, _Line | str]]]] = collections.deque()
    try:
        with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
            for batch in batches:
                waiting.append(pool.submit(_parse_all, batch))
                if len(waiting) > 4 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "a process that parses line files has ended early; a script that calls this must do its work under "
            'if __name__ == "__main__":, and there must be memory for it'
        ) from error


def _parse_all(jobs: Sequence[_Job]) -> list[tuple[str, _Line | str]]:
    return [(job[0], _parse(job)) for job in jobs]


def _parse(job: _Job) -> _Line | str:
    """The points (n, 2) of a line file and where its pen is up; or why there are none."""
    content = _content(job[1]) if isinstance(job[1], Path) else job[1]
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
    """Collects points, and after how many of them a stroke ends."""

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
                f"point {len(self.points) + 1} needs a whole number up to {LARGEST_COORDINATE} as its {axis}; got {got}"
            )
        return value
