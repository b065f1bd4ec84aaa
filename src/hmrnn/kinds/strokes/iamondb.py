"""IAM-OnDB, the IAM On-Line Handwriting Database, in the layout of its download: one XML file per line of writing.

Files are recognised by their names, in folders and tar archives of any depth: ``a01-000u-01.xml`` is the first line of
the form a01-000u, ``a01-000u.txt`` the transcript of the form; ``trainset.txt``, ``testset_v.txt``, ``testset_t.txt``
and ``testset_f.txt`` list the forms of the official sets.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated
from xml.etree.ElementTree import ParseError

import defusedxml.ElementTree
import msgspec
import numpy as np

from hmrnn.errors import InputError, check_not_root, no_file
from hmrnn.kinds.strokes.strokes import Strokes, counted, marked
from hmrnn.utils import files
from hmrnn.utils.archives import LARGEST_MEMBER, Report, is_tar, read_tar

SETS = {"trainset": "train", "testset_v": "valid", "testset_f": "test"}
"""The official sets and their use; testset_t, a second validation set, is not used."""
LARGEST_COORDINATE = 16383
"""A step between two points then fits into 16 bits; coordinates of the whiteboard are below 10,000."""

_KINDS = {
    "line": re.compile(r"[^.].{0,250}-[0-9]{1,20}\.xml"),
    "split": re.compile(r"(trainset|testset_[vtf])\.txt"),
    "transcript": re.compile(r"([a-z]\d+-\d+[a-z]?)\.txt"),
}
"""What files are, by their names."""
_LONGEST = 500  # characters of the path of a file that are shown
_BREAK = re.compile("%{4,}")  # separates lines in some transcripts
_MISSING = "Please Enter Transcription here"  # placeholder for a line in some transcripts
_TARS = ("lineStrokes", "ascii", "task")  # how the names of the official archives start

_Coordinate = Annotated[int, msgspec.Meta(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]


class _Point(msgspec.Struct):
    """The attributes of a Point that are read."""

    x: _Coordinate
    y: _Coordinate


def is_iamondb(path: Path) -> bool:
    """Whether a file or a folder holds lines of IAM-OnDB, and no texts but transcripts and official sets, by names."""
    found = [p.name for p in path.rglob("*")] if path.is_dir() else [path.name]
    lines = any(_kind(name) == "line" or (is_tar(Path(name)) and name.startswith(_TARS[0])) for name in found)
    return lines and all(_kind(name) for name in found if name.endswith(".txt"))


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """The files to read, those in folders included. Archives of a folder come last: unpacked files take precedence."""
    found: list[Path] = []
    for path in paths:
        check_not_root(path)
        if not path.exists():
            raise no_file(path, what="file or folder")
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        here = [p for p in inside if _kind(p.name)]
        here += [p for p in inside if is_tar(p) and (p == path or p.name.startswith(_TARS))]
        if not here:
            raise InputError(
                f"{path} holds no part of IAM-OnDB: lines such as a01-000u-01.xml, trainset.txt and testset_*.txt, "
                "or tar archives such as lineStrokes-all.tar.gz; name an .npz archive in a folder itself"
            )
        found += here
    return found


def read_iamondb(sources: Sequence[Path], report: Report) -> Strokes:
    """All lines of these files, sorted by name. Damaged and empty files are skipped and listed.

    Of several files with one name the first is used; the others are listed as skipped if they differ from it.
    """
    lines: dict[str, np.ndarray] = {}
    texts: dict[str, str] = {}
    skipped: list[str] = []
    for where, content in itertools.chain.from_iterable(_files(path, report) for path in sources):
        name, why = where.rsplit("/", 1)[-1], None
        if isinstance(content, bytes) and _kind(name) != "line":
            text = content.decode("utf-8", "replace")
            if texts.setdefault(name, text).split() != text.split():
                why = "there is another file of this name with other words"
        else:
            line = _parse(content)
            if isinstance(line, str):
                why = line
            elif not np.array_equal(lines.setdefault(_printable(name.removesuffix(".xml")), line), line):
                why = "there is another line of this name"
        if why is not None:
            skipped.append(f"{_printable(where[-_LONGEST:])}: {why}")
    if not lines:
        first = f"; {counted(len(skipped), 'file')} skipped, first {skipped[0]}" if skipped else ""
        raise InputError(
            f"there is no line of IAM-OnDB in {', '.join(map(str, sources[:3]))}; line files have names like "
            f"a01-000u-01.xml, in the folder lineStrokes or in lineStrokes-all.tar.gz{first}"
        )
    names = sorted(lines)
    forms = [name.rpartition("-")[::2] for name in names]  # with the number of the line
    sets = {form: name.removesuffix(".txt") for name in texts if _kind(name) == "split" for form in texts[name].split()}
    said = {
        (name.removesuffix(".txt"), number): line
        for name, text in texts.items()
        if _kind(name) == "transcript"
        for number, line in enumerate(_transcript(text), start=1)
    }
    known = [said.get((form, int(number)), "") for form, number in forms]
    return Strokes.of(
        [lines[name] for name in names], names, known if any(known) else (), source=str(sources[0]), points=True,
        skipped=skipped, split=[sets.get(form, "none") for form, _ in forms] if sets else (),
    )  # fmt: skip


def read_line(path: Path) -> Strokes:
    """The strokes of one line file."""
    line = _parse(_content(path))
    if isinstance(line, str):
        raise InputError(f"{path}: {line}")
    return Strokes.of([line], [path.stem], source=str(path), points=True)


def _kind(name: str) -> str | None:
    """What a file of this name holds: "line", "split", "transcript", or None if it is not part of IAM-OnDB."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(name)), None)


def _printable(name: str) -> str:
    """A file name, which may hold any characters, on one line of printable ones."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _files(path: Path, report: Report) -> Iterator[tuple[str, bytes | str]]:
    """Path and content of a file, or of each file of IAM-OnDB in an archive; or why it cannot be read."""
    if is_tar(path):
        for name, content in read_tar(path, lambda name: bool(_kind(name.rsplit("/", 1)[-1])), report):
            yield f"{path.name}/{name}", content
    else:
        content = _content(path)
        report(len(content) if isinstance(content, bytes) else 0)
        yield str(path), content


def _transcript(text: str) -> list[str]:
    """The lines of a form: the recognised text comes first, the correct one after the heading CSR."""
    _, _, correct = text.partition("CSR:")
    lines = [line for line in map(str.strip, _BREAK.sub("\n", correct).splitlines()) if line]
    return ["" if line == _MISSING else line for line in lines]


def _content(path: Path) -> bytes | str:
    """The content of a file, or why it cannot be read."""
    try:
        content = files.content(path, LARGEST_MEMBER)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return f"it has more than {LARGEST_MEMBER:,} bytes" if content is None else content


def _parse(content: bytes | str) -> np.ndarray | str:
    """The points of a line file (n, 3), 1 at the last of each stroke; or why it has none."""
    if isinstance(content, str):
        return content
    try:
        root = defusedxml.ElementTree.fromstring(content, forbid_dtd=True)
        found = [[point.attrib for point in stroke.iter("Point")] for stroke in root.iter("Stroke")]
        strokes = msgspec.convert(found, list[list[_Point]], strict=False)
    except (ParseError, ValueError, LookupError) as error:
        return f"it is not XML of points with whole numbers x and y: {located(error, 'stroke', 'point')}"
    if not any(strokes) or sum(map(len, strokes)) < len(root.findall(".//Point")):
        return "it has no points, or some outside a Stroke"
    return marked([[(point.x, point.y) for point in stroke] for stroke in strokes]).astype(np.int16)


def located(error: Exception, *levels: str) -> str:
    """What is wrong in nested lists of these levels, after its place, as in "stroke 2, point 1"."""
    what, _, path = str(error).partition(" - at ")
    numbers = re.findall(r"\[(\d+)", path)
    return ", ".join([*(f"{level} {int(n) + 1}" for level, n in zip(levels, numbers)), what])
