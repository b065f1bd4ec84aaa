"""Files of pen strokes: .npz, JSON and CSV, and the compact archive of a corpus."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hmrnn.errors import InputError, no_file
from hmrnn.kinds.strokes.iamondb import find_sources, is_iamondb, located, read_iamondb, read_line
from hmrnn.kinds.strokes.strokes import Lines, Strokes, as_lines, coordinates, counted, from_arrays, marked, polylines
from hmrnn.utils.archives import PACKED, Report, read_npz, read_whole
from hmrnn.utils.files import ADVICE, write
from hmrnn.utils.inputs import decoded

ENDINGS = (".npz", ".json", ".csv")
_COLUMNS = ["sequence", "stroke", "x", "y"]
_LISTED = ("names", "texts", "split", "conditions", "skipped")


class _Sequence(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An element of a JSON file."""

    strokes: list[list[tuple[float, float]]]
    name: str | None = None
    text: str | None = None
    split: str | None = None


def is_stroke_file(path: Path) -> bool:
    """Whether the name ends in .npz, .json or .csv, possibly followed by .xz, .gz or .bz2."""
    return path.name.endswith(tuple(ending + packed for ending in ENDINGS for packed in ("", *PACKED)))


def read_strokes(path: str | Path) -> Strokes:
    """The sequences in a file: .npz (arrays or an archive), .json, .csv; or a line or a tar archive of IAM-OnDB."""
    path = Path(os.path.expanduser(path))
    if path.suffix == ".xml":
        return read_line(path)
    if path.is_dir() or not is_iamondb(path):
        return read_file(path, lambda count: None)
    found = read_iamondb(find_sources([path]), lambda count: None)
    if found.skipped:
        raise InputError(
            f"{path}: {counted(len(found.skipped), 'file')} cannot be read, first {found.skipped[0]}; remove what is "
            "broken, or write the others to a file by hmrnn data iamondb PATH --archive lines.npz"
        )
    return found


def read_file(path: Path, report: Report) -> Strokes:
    """The contents of a .npz, .json or .csv file; ``report`` receives the bytes read."""
    if not is_stroke_file(path):
        raise InputError(
            f"{path}: strokes are read from .npz, .json and .csv files, and from line files of IAM-OnDB (.xml); "
            "hmrnn data PATH --archive lines.npz makes a file of a folder"
        )
    if not path.is_file():
        raise no_file(path)
    ending = next(ending for ending in reversed(path.suffixes[-2:]) if ending in ENDINGS)  # perhaps before .gz
    read = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}[ending]
    return read(read_whole(path, report), str(path))


def _read_npz(data: bytes, source: str) -> Strokes:
    """One's own arrays (offsets, points, pen_up), or an archive: steps as int16 in dxy, pen_up as packed bits."""
    arrays = read_npz(data, source, ("offsets", "points", "dxy", "pen_up", *_LISTED))
    packed = "dxy" in arrays
    try:
        xy, pen_up, offsets = (arrays[name] for name in ("dxy" if packed else "points", "pen_up", "offsets"))
        if packed:
            pen_up = np.unpackbits(pen_up)[: len(xy)]
        listed: dict[str, list[str]] = {
            name: [value if isinstance(value, str) else value.decode() for value in arrays[name].reshape(-1).tolist()]
            for name in _LISTED
            if name in arrays
        }
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source} must hold the arrays offsets, points and pen_up, and may hold names, texts and split in UTF-8: "
            f"{error}"
        ) from error
    return from_arrays(xy, pen_up, offsets, source=source, points=not packed, **listed)


def _read_json(data: bytes, source: str) -> Strokes:
    try:
        sequences = msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=list[_Sequence])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        byte = re.search(r"byte (\d+)", str(error))
        line = f"line {data.count(10, 0, int(byte[1])) + 1}: " if byte else ""
        raise InputError(
            f"{source} is not a JSON list of {{name, strokes}}, where strokes is a list of lists of [x, y]: "
            f"{line}{located(error, 'sequence', 'stroke', 'point')}"
        ) from error
    names = [s.name if s.name is not None else str(i) for i, s in enumerate(sequences, start=1)]
    listed = {"texts": [s.text or "" for s in sequences], "split": [s.split or "" for s in sequences]}
    known = {name: column for name, column in listed.items() if any(column)}
    return Strokes.of([marked(s.strokes) for s in sequences], names, source=source, points=True, **known)


def _read_csv(data: bytes, source: str) -> Strokes:
    points: list[tuple[str, str, float, float]] = []
    rows = csv.reader(io.StringIO(decoded(data, source), newline=""), strict=True)
    try:
        header = next(rows, [])
        for name, stroke, x, y in filter(None, rows):
            points.append((name, stroke, float(x), float(y)))
    except (ValueError, csv.Error) as error:
        raise InputError(
            f"{source}: each line of a CSV file is {','.join(_COLUMNS)}, x and y numbers; line {rows.line_num}: {error}"
        ) from error
    strokes = [(key, [point[2:] for point in run]) for key, run in itertools.groupby(points, lambda point: point[:2])]
    sequences = [(name, marked([s for _, s in run])) for name, run in itertools.groupby(strokes, lambda s: s[0][0])]
    names = [name for name, _ in sequences]
    torn = len(set(names)) < len(names) or len({key for key, _ in strokes}) < len(strokes)
    if torn or [name.strip() for name in header] != _COLUMNS:
        raise InputError(
            f"{source} must begin with the line {','.join(_COLUMNS)}, and the points of a stroke and the strokes of a "
            "sequence must be contiguous"
        )
    return Strokes.of([line for _, line in sequences], names, source=source, points=True)


def save_strokes(lines: Lines, path: str | Path) -> None:
    """Write sequences as .npz, .json or .csv, by the ending of ``path``; each starts at (0, 0)."""
    strokes = lines if isinstance(lines, Strokes) else Strokes.of(as_lines(lines))
    path = Path(os.path.expanduser(path))
    if path.suffix not in ENDINGS or (path.suffix == ".csv" and len(set(strokes.names)) < len(strokes)):
        raise InputError(f"{path}: strokes are written as .npz or .json or, if their names differ, .csv")
    if path.suffix == ".npz":
        points = np.concatenate([coordinates(steps) for steps in strokes])
        content = _npz(strokes, points=points, pen_up=strokes.steps[:, 2].astype(np.uint8))
    elif path.suffix == ".json":
        listed = [
            _Sequence([[(x, y) for x, y in stroke.tolist()] for stroke in polylines(steps)], name, text)
            for steps, name, text in itertools.zip_longest(strokes, strokes.names, strokes.texts)
        ]
        content = msgspec.json.encode(listed) + b"\n"
    else:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for steps, name in zip(strokes, strokes.names):
            for k, stroke in enumerate(polylines(steps), start=1):
                rows.writerows((name, k, x, y) for x, y in stroke.tolist())
        content = text.getvalue().encode()
    write(path, content, advice=ADVICE)


def save_archive(strokes: Strokes, path: Path, *, advice: str | None = ADVICE) -> None:
    """Write a corpus as one compact archive; its steps must be 16-bit integers.

    ``advice`` is for the InputError if the path cannot be written; with None an OSError is raised.
    """
    moves = strokes.steps[:, :2]
    dxy = moves.astype(np.int16)
    if not np.array_equal(dxy, moves):
        raise InputError(f"{path}: an archive holds steps that are integers up to 32767; save these as .npz")
    packed = np.packbits(strokes.steps[:, 2].astype(bool))
    write(path, _npz(strokes, ("split", "conditions", "skipped"), dxy=dxy, pen_up=packed), advice=advice)


def _npz(strokes: Strokes, also: Sequence[str] = (), **arrays: Any) -> bytes:
    """Arrays with names, texts and ``also``, as far as they are known."""
    columns = {name: values for name in ("names", "texts", *also) if (values := getattr(strokes, name))}
    listed: Any = {name: np.array([value.encode() for value in values], np.bytes_) for name, values in columns.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, offsets=strokes.offsets, **arrays, **listed)
    return buffer.getvalue()
