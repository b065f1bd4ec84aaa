"""Small lines of handwriting that the tests make themselves, in the layout of IAM-OnDB."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import Strokes

Pen = Sequence[Sequence[tuple[int, int]]]


def config(*paths: object, **fields: Any) -> StrokeData:
    """What to load: of IAM-OnDB, unless ``format`` says otherwise."""
    return StrokeData(**{"format": "iamondb", "path": tuple(map(str, paths))} | fields)


def line(points: int, seed: int = 0) -> list[list[tuple[int, int]]]:
    """Strokes of one to seven points, so many points in all."""
    random = np.random.default_rng([seed, points])
    path = np.cumsum(random.integers(-30, 40, (points, 2)), axis=0) + 500
    cuts = np.cumsum(random.integers(1, 8, points))
    parts = np.split(path, cuts[cuts < points])
    return [[(int(x), int(y)) for x, y in part] for part in parts]


def xml(strokes: Pen) -> bytes:
    """A line file as IAM-OnDB has them."""
    rows = ['<?xml version="1.0" encoding="ISO-8859-1"?>', "<WhiteboardCaptureSession>", "  <WhiteboardDescription>"]
    rows += ['    <SensorLocation corner="top_left"/>', "  </WhiteboardDescription>", "  <StrokeSet>"]
    for stroke in strokes:
        rows.append('    <Stroke colour="black" start_time="1.00" end_time="2.00">')
        rows += [f'      <Point x="{x}" y="{y}" time="1.00"/>' for x, y in stroke]
        rows.append("    </Stroke>")
    return "\n".join([*rows, "  </StrokeSet>", "</WhiteboardCaptureSession>", ""]).encode()


def steps(strokes: Pen) -> np.ndarray:
    """What must come out: (Δx, Δy, pen up)."""
    points = [(x, y, k == len(stroke) - 1) for stroke in strokes for k, (x, y) in enumerate(stroke)]
    return np.array([(x - (points[i - 1][0] if i else x), y - (points[i - 1][1] if i else y), up)
                     for i, (x, y, up) in enumerate(points)], np.float32)  # fmt: skip


FORMS = {
    "trainset": ["a01-000u", "b02-003"],
    "testset_v": ["a01-001"],
    "testset_t": ["c01-000"],
    "testset_f": ["d01-010z"],
}


def collection(shortest: int = 20) -> dict[str, list[list[tuple[int, int]]]]:
    """Three lines of each form above, and one of a form that no set names."""
    names = [f"{form}-0{n}" for forms in FORMS.values() for form in forms for n in (1, 2, 3)] + ["e01-000-01"]
    return {name: line(shortest + k, k) for k, name in enumerate(names)}


def members(lines: dict[str, list[list[tuple[int, int]]]]) -> dict[str, bytes]:
    """All files of a small IAM-OnDB by their paths."""
    files = {f"lineStrokes/{n[:3]}/{n[:7]}/{n}.xml": xml(strokes) for n, strokes in lines.items()}
    files |= {f"{name}.txt": "".join(f" {form}\n" for form in forms).encode() for name, forms in FORMS.items()}
    files["ascii/a01/a01-000/a01-000u.txt"] = b"OCR:\n\nwhat was\nread\n\nCSR:\n\nthe first line\nthe second\n"
    files["lineStrokes/a01/.DS_Store"] = b"\0\1\2"
    files["lineStrokes/a01/a01-000/._a01-000u-01.xml"] = b"\0\5\x16\7"
    return files


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def npz(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


def some(count: int, shortest: int = 2, seed: int = 0) -> Strokes:
    """Lines of different lengths."""
    return Strokes.of([steps(line(shortest + (7 * k) % 40, seed + k)) for k in range(count)])
