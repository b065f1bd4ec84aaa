"""Bad files of strokes of one's own: each is a clear error, and nothing in them is run or unpacked without bounds."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lines import config, npz

from hmrnn import InputError
from hmrnn.config import Config
from hmrnn.kinds.strokes.corpus import load_strokes, read_collection
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig
from hmrnn.utils import archives
from refusals import refused


def arrays(**changes: Any) -> dict[str, Any]:
    """Two sequences of three and two points, as one's own .npz has them."""
    good = {"offsets": [0, 3, 5], "points": np.arange(10.0).reshape(5, 2), "pen_up": [0, 1, 1, 0, 1]}
    return {name: value for name, value in (good | changes).items() if value is not None}


def points(at: int, *point: float) -> np.ndarray:
    """Five points of which one is this one."""
    return np.insert(np.zeros((4, 2)), at, point, axis=0)


OWN: dict[str, dict[str, Any]] = {
    "no offsets": {"offsets": None},
    "no points": {"points": None},
    "no pen": {"pen_up": None},
    "offsets too far": {"offsets": [0, 3, 6]},
    "offsets too short": {"offsets": [0, 3]},
    "offsets late": {"offsets": [1, 3, 5]},
    "offsets descend": {"offsets": [0, 4, 3, 5]},
    "empty sequence": {"offsets": [0, 3, 3, 5]},
    "no sequence": {"offsets": [0], "points": np.zeros((0, 2)), "pen_up": np.zeros(0, int)},
    "no offset at all": {"offsets": np.zeros(0, int)},
    "real offsets": {"offsets": [0.0, 3.0, 5.0]},
    "huge offsets": {"offsets": np.array([0, 2**63, 5], np.uint64)},
    "points of three": {"points": np.zeros((5, 3))},
    "flat points": {"points": np.zeros(10)},
    "words": {"points": np.full((5, 2), "a")},
    "complex": {"points": np.zeros((5, 2), complex)},
    "not finite": {"points": points(1, 1, np.nan)},
    "infinite": {"points": points(3, -np.inf, 0)},
    "absurd": {"points": points(3, 1e30, 0)},
    "pen too short": {"pen_up": [0, 1]},
    "pen of two": {"pen_up": [0, 1, 2, 0, 1]},
    "names too few": {"names": ["a"]},
    "names of numbers": {"names": [1, 2]},
    "names not UTF-8": {"names": np.array([b"\xff", b"a"])},
    "split too short": {"split": ["train"]},
    "archive, a number for steps": {"dxy": 5, "points": None, "pen_up": np.zeros(0, np.uint8)},
    "a number for points": {"points": 5.0},
    "archive, pen not packed": {"dxy": np.zeros((5, 2), np.int16), "points": None},
    "archive, pen too short": {"dxy": np.zeros((9, 2), np.int16), "points": None, "pen_up": np.zeros(1, np.uint8)},
}


def unreadable(path: str | Path) -> None:
    """Refused in one line that names the file."""
    with refused() as caught:
        read_strokes(path)
    assert Path(path).name in str(caught.value)


@pytest.mark.parametrize("name", OWN)
def test_own_npz(tmp_path: Path, name: str) -> None:
    unreadable(npz(tmp_path / "s.npz", **arrays(**OWN[name])))


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return os.mkdir, ("pwned",)


def test_pickled_objects_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    objects = np.empty(2, object)
    objects[:] = [Evil(), Evil()]
    np.savez("s.npz", **arrays(names=objects))
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Evil()))
    for name in ("s.npz", "p.npz"):
        unreadable(name)
    assert not (tmp_path / "pwned").exists()


def npy(shape: Any, body: bytes = b"", descr: str = "<f8", header: bytes = b"") -> bytes:
    """An .npy file that declares any shape, or has any header."""
    header = header or str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (64 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize("content", [
    npy((1 << 50, 2)), npy((1 << 62, 1 << 62)), npy((-1, 2)), npy((4, 2), bytes(63)), npy((2, 2), bytes(64)),
    npy((5, 2), descr="|S0"), npy((5, 2), bytes(80), "|V8"), b"\x93NUMPY\x03\x00", b"\x93NUMPY\x01\x00\xff",
    b"", b"junk" * 9, npy((True,), bytes(8)), npy((), bytes(8)), npy((2.0,), bytes(16)), npy([5, 2], bytes(80)),
    npy(None, header=b"(" * 60_000), npy(None, header=b"(" * 900), npy(None, header=b"\n\n{'descr': 1"),
], ids=lambda content: repr(content)[:60])  # fmt: skip
def test_npz_that_lies_about_its_arrays(tmp_path: Path, content: bytes) -> None:
    path = Path(npz(tmp_path / "s.npz", **arrays(points=None)))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("points.npy", content)
    unreadable(path)


def test_npz_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_FILE", 1 << 20)
    np.savez_compressed(tmp_path / "s.npz", **arrays(points=np.zeros((1 << 18, 2))))
    assert (tmp_path / "s.npz").stat().st_size < 1 << 14
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was unpacked"))
    unreadable(tmp_path / "s.npz")
    for name, pack in (("s.npz.xz", lzma.compress), ("s.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(bytes(1 << 23)))
        unreadable(tmp_path / name)


def test_npz_that_declares_less_than_it_has(tmp_path: Path) -> None:
    """The declared size bounds what is read, so a false one cannot fill the memory."""
    path = tmp_path / "s.npz"
    np.savez_compressed(path, **arrays(points=np.zeros((1 << 16, 2))))
    data = bytearray(path.read_bytes())
    size = struct.pack("<I", (1 << 20) + 128)
    places = [i for i in range(len(data)) if data[i : i + 4] == size]
    assert places
    for place in places:
        data[place : place + 4] = struct.pack("<I", 500)
    path.write_bytes(data)
    unreadable(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_cut_off_files(tmp_path: Path, share: float) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    for name, whole in (("s.npz", buffer.getvalue()), ("s.npz.xz", lzma.compress(buffer.getvalue()))):
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        unreadable(tmp_path / name)


BAD = {
    "json": {
        "not JSON": "hello",
        "cut off": '[{"strokes": [[[1, 2',
        "no list": '{"strokes": []}',
        "no strokes": '[{"name": "a"}]',
        "unknown field": '[{"strokes": [[[1, 2]]], "points": 3}]',
        "point of three": '[{"strokes": [[[1, 2, 3]]]}]',
        "point of words": '[{"strokes": [[["1", 2]]]}]',
        "null": '[{"strokes": [[[1, null]]]}]',
        "not finite": '[{"strokes": [[[1, NaN]]]}]',
        "absurd": '[{"strokes": [[[1, 1e30]]]}]',
        "too large a number": '[{"strokes": [[[1, 1e999]]]}]',
        "no sequence": "[]",
        "no point": '[{"strokes": [[[1, 2]]]}, {"strokes": [[], []]}]',
        "deep": "[" * 100_000,
        "empty": "",
    },
    "csv": {
        "empty": "",
        "no header": "a,1,2,3\n",
        "only a header": "sequence,stroke,x,y\n",
        "too few values": "sequence,stroke,x,y\na,1,2,3\na,1,2\n",
        "decimal commas": "sequence,stroke,x,y\na,1,2,5,3,5\n",
        "no coordinate": "sequence,stroke,x,y\na,1,2,\n",
        "not finite": "sequence,stroke,x,y\na,1,2,nan\n",
        "absurd": "sequence,stroke,x,y\na,1,-1e30,1\n",
        "stroke torn apart": "sequence,stroke,x,y\na,1,1,1\na,2,1,1\na,1,1,1\n",
        "sequence torn apart": "sequence,stroke,x,y\na,1,1,1\nb,1,1,1\na,2,1,1\n",
        "open quote": 'sequence,stroke,x,y\n"a,1,1,1\n',
        "not UTF-8": "sequence,stroke,x,y\n\udcff,1,1,1\n",
    },
}


@pytest.mark.parametrize(("ending", "name"), [(ending, name) for ending, cases in BAD.items() for name in cases])
def test_own_json_and_csv(tmp_path: Path, ending: str, name: str) -> None:
    path = tmp_path / f"s.{ending}"
    path.write_bytes(BAD[ending][name].encode("utf-8", "surrogateescape"))
    unreadable(path)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("s.json", '[{"strokes": [[[1, 2]], [[3, 4], [5, "x"]]]}]', "sequence 1, stroke 2, point 2"),
        ("s.json", '[\n{"strokes": oops}]', "line 2"),
        ("s.csv", "sequence,stroke,x,y\na,1,2,3\na,1,zero,2\n", "line 3"),
        ("s.xml", '<a><Stroke><Point x="1" y="2"/><Point x="one" y="2"/></Stroke></a>', "stroke 1, point 2"),
    ],
)
def test_what_is_wrong_is_found_in_the_file(name: str, content: str, place: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=place):
        read_strokes(tmp_path / name)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("hello")
    (tmp_path / "d").mkdir()
    for path in ("s.txt", "no.npz", "d"):
        with pytest.raises(InputError, match=path):
            load_strokes(config(tmp_path / path, format="strokes"))
    with pytest.raises(InputError) as error:
        load_strokes(StrokeData(format="strokes"))
    assert error.value.setting == "data.path"


def test_every_line_has_a_part_or_none_has(tmp_path: Path) -> None:
    drawn = [{"strokes": [[[k, 0], [k, 2]]], "split": part} for k, part in enumerate(["train", None, "valid", "test"])]
    (tmp_path / "some.json").write_text(json.dumps(drawn))
    npz(tmp_path / "unknown.npz", **arrays(split=["train", "trainset"]))
    npz(tmp_path / "two.npz", **arrays(split=["train", "test"]))
    for name in ("some.json", "unknown.npz", "two.npz"):
        with refused():
            load_strokes(config(tmp_path / name, format="strokes"))
    folder = tmp_path / "folder"
    folder.mkdir()
    npz(folder / "a.npz", **arrays(split=["train", "test"]))
    npz(folder / "b.npz", **arrays())
    npz(folder / "c.npz", **arrays(split=["valid", "train"]))
    with refused():
        load_strokes(config(folder, format="strokes"))
    (folder / "b.npz").unlink()
    assert read_collection(config(folder, format="strokes")).split == ("train", "test", "valid", "train")
    (tmp_path / "empty").mkdir()
    data = StrokeData(path=(str(folder), str(tmp_path / "empty")))
    with pytest.raises(InputError) as error:
        read_collection(data)
    assert error.value.setting == "data.path"


def test_no_names_are_numbers(tmp_path: Path) -> None:
    npz(tmp_path / "a.npz", **arrays(names=np.zeros(0, "S1")))
    assert read_strokes(tmp_path / "a.npz").names == ("1", "2")


@pytest.mark.parametrize(("field", "value"), [("min_points", 1), ("split_seed", -1), ("lines", 0)])
def test_settings(field: str, value: int) -> None:
    with pytest.raises(InputError) as error:
        Config(StrokeData(**{"format": "handwritten", field: value}), StrokeModelConfig()).check()  # type: ignore[arg-type]
    assert error.value.setting == f"data.{field}"
