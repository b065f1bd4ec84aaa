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
from hmrnn.config import Config, DataConfig
from hmrnn.kinds.strokes.corpus import load_strokes, read_collection
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.utils import archives


def arrays(**changes: Any) -> dict[str, Any]:
    """Two sequences of three and two points, as one's own .npz has them."""
    good = {"offsets": [0, 3, 5], "points": np.arange(10.0).reshape(5, 2), "pen_up": [0, 1, 1, 0, 1]}
    return {name: value for name, value in (good | changes).items() if value is not None}


OWN: dict[str, tuple[dict[str, Any], str]] = {
    "no offsets": ({"offsets": None}, "must hold the arrays offsets, points and pen_up; offsets missing"),
    "no points": ({"points": None}, "points missing"),
    "no pen": ({"pen_up": None}, "pen_up missing"),
    "offsets too far": ({"offsets": [0, 3, 6]}, "from 0 to 5, the number of points; they go from 0 to 6"),
    "offsets too short": ({"offsets": [0, 3]}, "they go from 0 to 3"),
    "offsets late": ({"offsets": [1, 3, 5]}, "they go from 1 to 5"),
    "offsets descend": ({"offsets": [0, 4, 3, 5]}, "sequence 2 has -1"),
    "empty sequence": ({"offsets": [0, 3, 3, 5]}, "every sequence has at least one point; sequence 2 has 0"),
    "no sequence": ({"offsets": [0], "points": np.zeros((0, 2)), "pen_up": np.zeros(0, int)}, "holds no sequence"),
    "no offset at all": ({"offsets": np.zeros(0, int)}, "one more than there are sequences"),
    "real offsets": ({"offsets": [0.0, 3.0, 5.0]}, "offsets must be integers"),
    "huge offsets": ({"offsets": np.array([0, 2**63, 5], np.uint64)}, "offsets must ascend"),
    "points of three": ({"points": np.zeros((5, 3))}, "points must be numbers of shape (N, 2); got float64 (5, 3)"),
    "flat points": ({"points": np.zeros(10)}, "points must be numbers of shape (N, 2)"),
    "words": ({"points": np.full((5, 2), "a")}, "points must be numbers of shape (N, 2)"),
    "complex": ({"points": np.zeros((5, 2), complex)}, "must hold plain numbers or strings; got '<c16'"),
    "not finite": ({"points": np.array([[0, 0], [1, np.nan], [0, 0], [0, 0], [0, 0]])}, "point 1 has (1, nan)"),
    "infinite": ({"points": np.array([[0, 0], [1, 1], [0, 0], [-np.inf, 0], [0, 0]])}, "point 3 has (-inf, 0)"),
    "absurd": ({"points": np.array([[0, 0], [1, 1], [0, 0], [1e30, 0], [0, 0]])},
               "every coordinate must lie between -1e+06 and 1e+06; point 3 has (1e+30, 0)"),
    "pen too short": ({"pen_up": [0, 1]}, "pen_up must have a value for each of 5 points; got int64 (2,)"),
    "pen of two": ({"pen_up": [0, 1, 2, 0, 1]}, "pen_up must be 0 or 1; got 2 at point 2"),
    "names too few": ({"names": ["a"]}, "2 sequences must have as many names; got 1"),
    "names of numbers": ({"names": [1, 2]}, "must be a list of strings"),
    "names not UTF-8": ({"names": np.array([b"\xff", b"a"])}, "is not UTF-8"),
    "split too short": ({"split": ["train"]}, "2 sequences must have as many values of split; got 1"),
    "archive, a number for steps": ({"dxy": 5, "points": None, "pen_up": np.zeros(0, np.uint8)}, "got int64 ()"),
    "a number for points": ({"points": 5.0}, "points must be numbers of shape (N, 2); got float64 ()"),
    "archive, pen not packed": ({"dxy": np.zeros((5, 2), np.int16), "points": None}, "must be 1 byte, one bit per"),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_own_npz(tmp_path: Path, name: str) -> None:
    changes, why = OWN[name]
    path = npz(tmp_path / "s.npz", **arrays(**changes))
    with pytest.raises(InputError) as error:
        read_strokes(path)
    assert why in str(error.value)
    assert "s.npz" in str(error.value)
    assert "\n" not in str(error.value)


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return os.mkdir, ("pwned",)


def test_pickled_objects_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    objects = np.empty(2, object)
    objects[:] = [Evil(), Evil()]
    np.savez("s.npz", **arrays(names=objects))
    with pytest.raises(InputError, match="array names holds pickled objects, which are never loaded"):
        read_strokes("s.npz")
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match=r"p\.npz is not a whole \.npz file"):
        read_strokes("p.npz")
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
    with pytest.raises(InputError, match=r"s\.npz.*(array points|points must be)[^\n]*$"):
        read_strokes(path)


def test_npz_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_FILE", 1 << 20)
    np.savez_compressed(tmp_path / "s.npz", **arrays(points=np.zeros((1 << 18, 2))))
    assert (tmp_path / "s.npz").stat().st_size < 1 << 14
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("was unpacked"))
    with pytest.raises(InputError, match=r"declares 4,1\d\d,\d\d\d bytes; at most 1,048,576 are read"):
        read_strokes(tmp_path / "s.npz")
    for name, pack in (("s.npz.xz", lzma.compress), ("s.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(bytes(1 << 23)))
        with pytest.raises(InputError, match="has more than 1,048,576 bytes, unpacked"):
            read_strokes(tmp_path / name)


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
    with pytest.raises(InputError, match=r"s\.npz"):
        read_strokes(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_cut_off_files(tmp_path: Path, share: float) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays())
    for name, whole in (("s.npz", buffer.getvalue()), ("s.npz.xz", lzma.compress(buffer.getvalue()))):
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match=rf"{name} is (empty|not a whole)"):
            read_strokes(tmp_path / name)


JSON: dict[str, tuple[str, str]] = {
    "not JSON": ("hello", "is not a JSON list of {name, strokes}"),
    "cut off": ('[{"strokes": [[[1, 2', "is not a JSON list"),
    "no list": ('{"strokes": []}', "is not a JSON list"),
    "no strokes": ('[{"name": "a"}]', "missing required field `strokes`"),
    "unknown field": ('[{"strokes": [[[1, 2]]], "points": 3}]', "`points`"),
    "point of three": ('[{"strokes": [[[1, 2, 3]]]}]', "length 2"),
    "point of words": ('[{"strokes": [[["1", 2]]]}]', "Expected `float`"),
    "missing coordinate": ('[{"strokes": [[[1]]]}]', "length 2"),
    "null": ('[{"strokes": [[[1, null]]]}]', "Expected `float`"),
    "not finite": ('[{"strokes": [[[1, NaN]]]}]', "is not a JSON list"),
    "absurd": ('[{"strokes": [[[1, 1e30]]]}]', "point 0 has (1, 1e+30)"),
    "too large a number": ('[{"strokes": [[[1, 1e999]]]}]', "s.json"),
    "no sequence": ("[]", "holds no sequence"),
    "no point": ('[{"strokes": [[[1, 2]]]}, {"strokes": [[], []]}]', "sequence 2 has no point"),
    "deep": ("[" * 100_000, "is not a JSON list"),
    "empty": ("", "s.json is empty"),
}
CSV: dict[str, tuple[str, str]] = {
    "no header": ("a,1,2,3\n", "must begin with the line sequence,stroke,x,y; got 'a,1,2,3'"),
    "only a header": ("sequence,stroke,x,y\n", "holds no sequence"),
    "too few values": (
        "sequence,stroke,x,y\na,1,2,3\na,1,2\n",
        "line 3 must have the 4 values sequence,stroke,x,y; got 3",
    ),
    "no number": ("sequence,stroke,x,y\na,1,2,x\n", "line 2: x and y must be numbers; got '2' and 'x'"),
    "no coordinate": ("sequence,stroke,x,y\na,1,2,\n", "line 2: x and y must be numbers; got '2' and ''"),
    "not finite": ("sequence,stroke,x,y\na,1,2,nan\n", "point 0 has (2, nan)"),
    "absurd": ("sequence,stroke,x,y\na,1,-1e30,1\n", "point 0 has (-1e+30, 1)"),
    "stroke torn apart": ("sequence,stroke,x,y\na,1,1,1\na,2,1,1\na,1,1,1\n", "line 4: the points of a stroke"),
    "sequence torn apart": ("sequence,stroke,x,y\na,1,1,1\nb,1,1,1\na,2,1,1\n", "line 4: the points of a stroke"),
    "open quote": ('sequence,stroke,x,y\n"a,1,1,1\n', "is not a CSV file in UTF-8"),
    "not UTF-8": ("sequence,stroke,x,y\n\udcff,1,1,1\n", "is not a CSV file in UTF-8"),
}


@pytest.mark.parametrize(("ending", "name"), [*(("json", n) for n in JSON), *(("csv", n) for n in CSV)])
def test_own_json_and_csv(tmp_path: Path, ending: str, name: str) -> None:
    content, why = (JSON if ending == "json" else CSV)[name]
    path = tmp_path / f"s.{ending}"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as error:
        read_strokes(path)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("hello")
    (tmp_path / "d").mkdir()
    for path, why in (("s.txt", "strokes are read from .npz, .json and .csv files"), ("no.npz", "there is no file"),
                      ("d", "is a folder without .npz, .json or .csv files")):  # fmt: skip
        with pytest.raises(InputError, match=why):
            load_strokes(config(tmp_path / path, format="strokes"))
    with pytest.raises(InputError, match=r"^data\.path\b"):
        load_strokes(DataConfig(format="strokes"))


def test_unknown_split(tmp_path: Path) -> None:
    path = npz(tmp_path / "s.npz", **arrays(split=["train", "trainset"]))
    with pytest.raises(InputError, match="split must be train, valid or test; got 'trainset'"):
        load_strokes(config(path, format="strokes"))


def test_split_that_one_sequence_lacks(tmp_path: Path) -> None:
    drawn = [{"strokes": [[[k, 0], [k, 2]]], "split": part} for k, part in enumerate(["train", None, "valid", None])]
    (tmp_path / "s.json").write_text(json.dumps(drawn))
    with pytest.raises(InputError, match=r"s\.json: sequence 2 has no split, and others have one; give one to all or"):
        load_strokes(config(tmp_path / "s.json", format="strokes"))


def test_split_that_one_file_lacks(tmp_path: Path) -> None:
    npz(tmp_path / "a.npz", **arrays(split=["train", "test"]))
    npz(tmp_path / "b.npz", **arrays())
    npz(tmp_path / "c.npz", **arrays(split=["valid", "train"]))
    with pytest.raises(InputError, match=r"b\.npz has no split, and other files have one; give one to all or to none"):
        load_strokes(config(tmp_path, format="strokes"))
    (tmp_path / "b.npz").unlink()
    assert read_collection(config(tmp_path, format="strokes")).split == ("train", "test", "valid", "train")


@pytest.mark.parametrize(("field", "value"), [("min_points", 1), ("split_seed", -1), ("lines", 0)])
def test_settings(field: str, value: int) -> None:
    with pytest.raises(InputError, match=rf"^data\.{field} {value}: "):
        Config(DataConfig(**{"format": "handwritten", field: value})).check()  # type: ignore[arg-type]
