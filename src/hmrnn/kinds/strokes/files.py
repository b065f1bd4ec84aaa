"""Files of pen strokes: .npz, JSON and CSV, and the compact archive of a corpus."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hmrnn.errors import InputError, no_file
from hmrnn.kinds.strokes.iamondb import find_sources, is_iamondb, read_iamondb, read_line
from hmrnn.kinds.strokes.strokes import Lines, StrokeFile, Strokes, as_lines, counted, from_arrays, polylines
from hmrnn.utils.archives import PACKED, Report, read_npz, read_whole
from hmrnn.utils.files import ADVICE, write

ENDINGS = (".npz", ".json", ".csv")
_ARRAYS = ("offsets", "points", "dxy", "pen_up", "names", "texts", "split", "skipped")
_COLUMNS = ["sequence", "stroke", "x", "y"]


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
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, and no file of strokes; hmrnn data {path} --archive lines.npz makes one of it"
        )
    if path.suffix == ".xml":
        return read_line(path)
    if not is_iamondb(path):
        return read_file(path, lambda count: None).strokes
    found = read_iamondb(find_sources([path]), lambda count: None)
    if found.skipped:
        raise InputError(
            f"{path}: {counted(len(found.skipped), 'file')} cannot be read, first {found.skipped[0]}; remove what is "
            "broken, or write the others to a file by hmrnn data iamondb --path ... --archive lines.npz"
        )
    return found.strokes


def read_file(path: Path, report: Report) -> StrokeFile:
    """The contents of a .npz, .json or .csv file; ``report`` receives the bytes read."""
    if not path.is_file():
        raise no_file(path)
    if not is_stroke_file(path):
        raise InputError(
            f"{path}: strokes are read from .npz, .json and .csv files, and from line files of IAM-OnDB (.xml); "
            "convert it to one of them"
        )
    data = read_whole(path, report)
    if not data:
        raise InputError(f"{path} is empty")
    ending = next(ending for ending in reversed(path.suffixes[-2:]) if ending in ENDINGS)  # perhaps before .gz
    return {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}[ending](data, str(path))


def _read_npz(data: bytes, source: str) -> StrokeFile:
    """One's own arrays (offsets, points, pen_up), or an archive: steps as int16 in dxy, pen_up as packed bits."""
    arrays = read_npz(data, source, _ARRAYS)
    packed = "dxy" in arrays
    missing = [name for name in ("offsets", "dxy" if packed else "points", "pen_up") if name not in arrays]
    if missing:
        raise InputError(f"{source} must hold the arrays offsets, points and pen_up; {', '.join(missing)} missing")
    names, texts, split, skipped = (
        _strings(arrays.get(name), f"{source}, array {name}") for name in ("names", "texts", "split", "skipped")
    )
    xy, pen_up = arrays["dxy" if packed else "points"], arrays["pen_up"]
    if packed:
        points = xy.shape[0] if xy.ndim else 0
        if pen_up.dtype != np.uint8 or pen_up.shape != (-(-points // 8),):
            raise InputError(
                f"{source}: pen_up of an archive must be {counted(-(-points // 8), 'byte')}, one bit per point; "
                f"got {pen_up.dtype} {pen_up.shape}"
            )
        pen_up = np.unpackbits(pen_up, count=points)
    strokes = from_arrays(xy, pen_up, arrays["offsets"], names, texts, source, points=not packed)
    if split is not None and len(split) != len(strokes):
        raise InputError(
            f"{source}: {counted(len(strokes), 'sequence')} must have as many values of split; got {len(split)}"
        )
    return StrokeFile(strokes, split, skipped or ())


def _strings(array: np.ndarray | None, source: str) -> tuple[str, ...] | None:
    if array is None:
        return None
    if array.ndim != 1 or array.dtype.kind not in "SU":
        raise InputError(f"{source} must be a list of strings; got {array.dtype} {array.shape}")
    try:
        return tuple(value.decode() if isinstance(value, bytes) else value for value in array.tolist())
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8: {error}") from error


def _read_json(data: bytes, source: str) -> StrokeFile:
    try:
        sequences = msgspec.json.decode(data.removeprefix(codecs.BOM_UTF8), type=list[_Sequence])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{source} is not a JSON list of {{name, strokes}}, where strokes is a list of lists of [x, y]: {error}"
        ) from error
    names = [s.name if s.name is not None else str(i) for i, s in enumerate(sequences, start=1)]
    for name, sequence in zip(names, sequences):
        if not any(sequence.strokes):
            raise InputError(f"{source}: sequence {name} has no point")
    strokes = _join([s.strokes for s in sequences], names, [s.text for s in sequences], source)
    split = tuple(s.split for s in sequences if s.split is not None)
    if 0 < len(split) < len(sequences):
        first = next(name for name, s in zip(names, sequences) if s.split is None)
        raise InputError(f"{source}: sequence {first} has no split, and others have one; give one to all or to none")
    return StrokeFile(strokes, split or None)


def _read_csv(data: bytes, source: str) -> StrokeFile:
    try:
        rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        header = next(rows, [])
        if [name.strip() for name in header] != _COLUMNS:
            raise InputError(f"{source} must begin with the line {','.join(_COLUMNS)}; got {','.join(header)[:80]!r}")
        sequences: dict[str, dict[str, list[tuple[float, float]]]] = {}
        before = ("", "")
        for row in filter(None, rows):
            where = f"{source}, line {rows.line_num}"
            if len(row) != len(_COLUMNS):
                raise InputError(f"{where} must have the {len(_COLUMNS)} values {','.join(_COLUMNS)}; got {len(row)}")
            name, stroke = row[0], row[1]
            known = sequences.setdefault(name, {})
            if (name, stroke) != before and (stroke in known or (known and name != before[0])):
                raise InputError(f"{where}: the points of a stroke and the strokes of a sequence must be contiguous")
            before = (name, stroke)
            try:
                known.setdefault(stroke, []).append((float(row[2]), float(row[3])))
            except ValueError:
                raise InputError(f"{where}: x and y must be numbers; got {row[2][:40]!r} and {row[3][:40]!r}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{source} is not a CSV file in UTF-8: {error}") from error
    names = list(sequences)
    return StrokeFile(_join([list(sequences[name].values()) for name in names], names, None, source))


def _join(
    sequences: Sequence[Sequence[Sequence[tuple[float, float]]]],
    names: Sequence[str],
    texts: Sequence[str | None] | None,
    source: str,
) -> Strokes:
    """Strokes from sequences of strokes of points."""
    lengths = [[len(stroke) for stroke in sequence if stroke] for sequence in sequences]
    points = np.array([point for sequence in sequences for stroke in sequence for point in stroke], np.float64)
    pen_up = np.zeros(len(points), np.uint8)
    pen_up[np.cumsum([n for sequence in lengths for n in sequence], dtype=np.int64) - 1] = 1
    offsets = np.cumsum([0, *map(sum, lengths)])
    known = None if texts is None or not any(texts) else [text or "" for text in texts]
    return from_arrays(points.reshape(-1, 2), pen_up, offsets, names, known, source, points=True)


def save_strokes(lines: Lines, path: str | Path) -> None:
    """Write sequences as .npz, .json or .csv, by the ending of ``path``; each starts at (0, 0)."""
    strokes = lines if isinstance(lines, Strokes) else Strokes.of(as_lines(lines))
    path = Path(os.path.expanduser(path))
    if path.suffix == ".npz":
        points = np.concatenate([strokes.coordinates(i) for i in range(len(strokes))])
        pen_up = strokes.steps[:, 2].astype(np.uint8)
        content = _npz(offsets=strokes.offsets, points=points, pen_up=pen_up, **_labels(strokes))
    elif path.suffix == ".json":
        texts = strokes.texts or [None] * len(strokes)
        listed = [
            _Sequence([[(x, y) for x, y in stroke.tolist()] for stroke in polylines(steps)], name, text)
            for steps, name, text in zip(strokes, strokes.names, texts)
        ]
        content = msgspec.json.encode(listed) + b"\n"
    elif path.suffix == ".csv":
        if len(set(strokes.names)) < len(strokes):
            raise InputError(f"{path}: names of sequences must differ in a .csv file; save these as .npz")
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for steps, name in zip(strokes, strokes.names):
            for k, stroke in enumerate(polylines(steps), start=1):
                rows.writerows((name, k, x, y) for x, y in stroke.tolist())
        content = text.getvalue().encode()
    else:
        raise InputError(f"{path}: strokes are written as .npz, .json or .csv; use one of these endings")
    write(path, content, advice=ADVICE)


def save_archive(file: StrokeFile, path: Path, *, advice: str | None = ADVICE) -> None:
    """Write a corpus as one compact archive; its steps must be 16-bit integers.

    ``advice`` is for the InputError if the path cannot be written; with None an OSError is raised.
    """
    strokes = file.strokes
    moves = strokes.steps[:, :2]
    dxy = moves.astype(np.int16)
    if not np.array_equal(dxy, moves):
        raise InputError(f"{path}: an archive holds steps that are integers up to 32767; save these as .npz")
    arrays = {"dxy": dxy, "pen_up": np.packbits(strokes.steps[:, 2].astype(bool)), **_labels(strokes)}
    for name, values in (("split", file.split), ("skipped", file.skipped)):
        if values:
            arrays[name] = _encoded(values)
    write(path, _npz(offsets=strokes.offsets, **arrays), advice=advice)


def _labels(strokes: Strokes) -> dict[str, np.ndarray]:
    texts = {} if strokes.texts is None else {"texts": _encoded(strokes.texts)}
    return {"names": _encoded(strokes.names), **texts}


def _encoded(values: Sequence[str]) -> np.ndarray:
    return np.array([value.encode() for value in values], np.bytes_)


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
