"""Bad pen strokes: a broken line file is reported and skipped, anything else is a clear error; nothing is unpacked."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lines import collection, line, members, npz, put, steps, tar, xml

from hmrnn import InputError
from hmrnn.config import DataConfig
from hmrnn.data import Strokes, archives, iamondb, load_corpus, load_strokes, read_strokes
from hmrnn.data.stroke_corpus import read_collection

GOOD = xml(line(12))
BILLION = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY a "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<StrokeSet><Stroke colour="&c;"><Point x="1" y="2"/></Stroke></StrokeSet>"""
EXTERNAL = b"""<?xml version="1.0"?>
<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/hostname">]>
<StrokeSet>&secret;<Stroke><Point x="1" y="2"/></Stroke></StrokeSet>"""


def stroke(content: str) -> bytes:
    return f"<S><StrokeSet><Stroke>{content}</Stroke></StrokeSet></S>".encode()


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "blank": (b" \n", "it is empty"),
    "not XML": (b"\x89PNG\r\n\x1a\n" + bytes(50), "it is not XML"),
    "cut off": (GOOD[:400], "it is not XML: unclosed token in line 11"),
    "HTML": (b"<!DOCTYPE html><html><body>log in first</body></html>", "it declares a document type"),
    "billion laughs": (BILLION, "it declares a document type or entities"),
    "external entity": (EXTERNAL, "it declares a document type or entities"),
    "undefined entity": (stroke("&x;"), "it is not XML: undefined entity"),
    "unknown encoding": (b'<?xml version="1.0" encoding="klingon"?><a/>', "unknown encoding"),
    "no strokes": (b"<WhiteboardCaptureSession><StrokeSet/></WhiteboardCaptureSession>", "it has no points"),
    "empty strokes": (stroke(""), "it has no points"),
    "no x": (stroke('<Point y="3"/>'), "point 1 needs a whole number up to 16383 as its x; got none"),
    "no y": (
        stroke('<Point x="1" y="3"/><Point x="3"/>'),
        "point 2 needs a whole number up to 16383 as its y; got none",
    ),
    "not a number": (stroke('<Point x="1" y="nan"/>'), "as its y; got 'nan'"),
    "infinite": (stroke('<Point x="inf" y="1"/>'), "as its x; got 'inf'"),
    "fraction": (stroke('<Point x="1.5" y="1"/>'), "as its x; got '1.5'"),
    "1e30": (stroke('<Point x="1e30" y="1"/>'), "as its x; got '1e30'"),
    "too large": (stroke('<Point x="16384" y="1"/>'), "as its x; got '16384'"),
    "far below": (stroke('<Point x="1" y="-99999"/>'), "as its y; got '-99999'"),
    "many digits": (stroke(f'<Point x="{"9" * 5000}" y="1"/>'), "as its x; got '99999"),
    "digits in groups": (stroke('<Point x="1_0" y="1"/>'), "as its x; got '1_0'"),
    "other digits": (stroke('<Point x="1" y="٣"/>'), "as its y; got '٣'"),
    "point outside": (b'<S><Point x="1" y="1"/></S>', "it has a Point outside a Stroke"),
}


def config(*paths: object, **fields: Any) -> DataConfig:
    return DataConfig(**{"format": "iamondb", "path": tuple(map(str, paths))} | fields)


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "tar"])
def test_broken_files_are_reported_and_the_rest_is_read(tmp_path: Path, packed: bool) -> None:
    lines = collection()
    files = members(lines)
    bad = {f"lineStrokes/z01/z01-000/z01-000-{k:02d}.xml": c for k, (c, _) in enumerate(BROKEN.values())}
    path = tar(tmp_path / "l.tar.gz", files | bad) if packed else put(tmp_path / "l", files | bad)
    file = read_collection(config(path))
    assert file.strokes.names == tuple(sorted(lines))
    assert len(file.skipped) == len(BROKEN)
    for k, (name, (_, why)) in enumerate(BROKEN.items()):
        (said,) = [reason for reason in file.skipped if f"z01-000-{k:02d}.xml: " in reason]
        assert why in said, (name, said)
        assert said.startswith(f"{path.name}/" if packed else str(path))
        assert "\n" not in said


def test_strokes_of_one_point_and_lines_of_one_stroke_are_fine(tmp_path: Path) -> None:
    drawn = [[(1, 1)], [(5, 5)], [(2, 9), (3, 9)]]
    put(tmp_path, {"a-01.xml": xml(drawn), "a-02.xml": xml([[(7, 7)]]), "a-03.xml": xml([[(1, 1)], [], [(2, 2)]])})
    file = read_collection(config(tmp_path))
    assert file.skipped == ()
    for got, wanted in zip(file.strokes, (drawn, [[(7, 7)]], [[(1, 1)], [(2, 2)]])):
        np.testing.assert_array_equal(got, steps(wanted))


def test_all_files_broken(tmp_path: Path) -> None:
    put(tmp_path, {"a-01.xml": b"<"})
    with pytest.raises(InputError, match=r"; 1 file skipped, first .*a-01\.xml"):
        load_strokes(config(tmp_path))
    put(tmp_path, {"a-02.xml": b""})
    with pytest.raises(InputError, match=r"there is no line of IAM-OnDB in .*; 2 files skipped, first .*a-01\.xml"):
        load_strokes(config(tmp_path))


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    tar(tmp_path / "empty.tar.gz", {})
    tar(tmp_path / "other.tar.gz", {"readme.md": b"hello"})
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    for name, why in (
        ("empty", "holds nothing of IAM-OnDB"),
        ("empty.tar.gz", "there is no line of IAM-OnDB in .*empty.tar.gz"),
        ("other.tar.gz", "there is no line of IAM-OnDB"),
        ("nowhere", "there is no file or folder .*nowhere"),
        ("x.pdf", "IAM-OnDB is read from a folder, tar archives"),
    ):
        with pytest.raises(InputError, match=why):
            load_strokes(config(tmp_path / name))
    with pytest.raises(InputError, match="format iamondb needs data, and none was named"):
        load_strokes(config())


def test_files_out_of_reach(tmp_path: Path) -> None:
    put(tmp_path, {"a-01.xml": GOOD})
    (tmp_path / "a-02.xml").mkdir()
    os.symlink(tmp_path / "nowhere.xml", tmp_path / "a-03.xml")
    os.mkfifo(tmp_path / "a-04.xml")  # reading it would wait for ever
    (tmp_path / "a-05.xml").write_bytes(b" " * (archives.LARGEST_MEMBER + 1))
    file = read_collection(config(tmp_path))
    assert file.strokes.names == ("a-01",)
    said = [reason.split("/")[-1] for reason in file.skipped]
    assert said[:3] == [f"a-0{k}.xml: it is not a regular file" for k in (2, 3, 4)]
    assert said[3] == "a-05.xml: it has more than 16,777,216 bytes"


def special(kind: bytes, name: str, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def test_tar_members_are_never_written_to_disk(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tar(tmp_path / "in" / "l.tar", {"a/a-01.xml": GOOD, "../evil-01.xml": GOOD, "/evil-02.xml": GOOD,
                                           "a/../../evil-03.xml": GOOD}, "w")  # fmt: skip
    with tarfile.open(path, "a") as archive:
        archive.addfile(special(tarfile.SYMTYPE, "a/link-01.xml", "/etc/passwd"))
        archive.addfile(special(tarfile.LNKTYPE, "a/link-02.xml", "a/a-01.xml"))
        archive.addfile(special(tarfile.FIFOTYPE, "a/pipe-01.xml"))
    file = read_collection(config(path))
    assert file.strokes.names == ("a-01",)
    assert all(reason.startswith("l.tar/") for reason in file.skipped)
    reasons = [reason.split(".xml: ")[1] for reason in file.skipped]
    assert reasons == ["its path leaves the folder"] * 3 + ["it is not a regular file"] * 3
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".npz") == ["l.tar"]
    assert not Path("/evil-02.xml").exists()


def test_names_of_many_characters(tmp_path: Path) -> None:
    """Nothing on a disk is called so, but a tar archive can hold it."""
    files = members(collection())
    number = "1" * 5000
    names = f"a01-000u-{number}.xml", f"{number}/b-01.xml"
    path = tar(tmp_path / "l.tar", files | {names[0]: GOOD, names[1]: b""}, "w")
    file = read_collection(config(path))
    assert file.strokes.names == tuple(sorted(collection()))
    shown = [f"l.tar/{name}"[:255] + "..." + name[-255:] for name in names]
    assert file.skipped == (f"{shown[0]}: its name has more than 255 characters", f"{shown[1]}: it is empty")


def test_lines_of_any_number_are_read(tmp_path: Path) -> None:
    files = members(collection()) | {f"a01-000u-{number}.xml": GOOD for number in ("00001", "0002", "١", "9" * 200)}
    file = read_collection(config(put(tmp_path / "l", files)))
    texts = dict(zip(file.strokes.names, file.strokes.texts or ()))
    assert len(texts) == len(collection()) + 4
    assert [texts[f"a01-000u-{n}"] for n in ("00001", "0002", "١", "9" * 200)] == ["", "the second", "", ""]


def test_the_same_line_twice(tmp_path: Path) -> None:
    put(tmp_path, {"a/a-01.xml": GOOD, "b/a-01.xml": xml(line(9))})
    file = read_collection(config(tmp_path))
    np.testing.assert_array_equal(file.strokes[0], steps(line(12)))
    assert "there is another line of this name" in file.skipped[0]


@pytest.mark.parametrize("ending", ["tar.gz", "tar", "tar.xz", "tar.bz2"])
def test_tar_that_is_cut_off_anywhere(tmp_path: Path, ending: str) -> None:
    mode = "w:" + ending.partition(".")[2]
    path = tar(tmp_path / f"l.{ending}", members(collection()), mode)
    whole = path.read_bytes()
    last = len(whole.rstrip(b"\0")) if ending == "tar" else len(whole)
    for size in (0, 1, 100, 512, 700, last // 2, last - 1, last // 512 * 512):
        path.write_bytes(whole[: min(size, last - 1)])
        with pytest.raises(InputError, match=r"is not a whole tar archive \(.*\); fetch or pack it again"):
            read_collection(config(path))


def test_damaged_header_does_not_lose_lines_silently(tmp_path: Path) -> None:
    path = tar(tmp_path / "l.tar", {f"a-0{k}.xml": GOOD for k in range(1, 6)}, "w")
    data = bytearray(path.read_bytes())
    place = data.index(b"a-04.xml")
    data[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not a whole tar archive"):
        read_collection(config(path))


def test_tar_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tar(tmp_path / "l.tar.gz", {"a-01.xml": GOOD, "a-02.xml": b" " * (archives.LARGEST_MEMBER + 1)})
    file = read_collection(config(path))
    assert "a-02.xml: it has 16,777,217 bytes; at most 16,777,216 are read" in file.skipped[0]
    huge = tarfile.TarInfo("a-03.xml")
    huge.size = 1 << 40
    (tmp_path / "h.tar").write_bytes(huge.tobuf() + bytes(4096))
    with pytest.raises(InputError, match="unpacks to more than 4,294,967,296 bytes"):
        read_collection(config(tmp_path / "h.tar"))
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 35
    (tmp_path / "p.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(InputError, match="has a header of 34,359,738,368 bytes"):
        read_collection(config(tmp_path / "p.tar"))


def arrays(**changes: Any) -> dict[str, Any]:
    """Two sequences of three and two points, as one's own .npz has them."""
    good = {"offsets": [0, 3, 5], "points": np.arange(10.0).reshape(5, 2), "pen_up": [0, 1, 1, 0, 1]}
    return {name: value for name, value in (good | changes).items() if value is not None}


OWN: dict[str, tuple[dict[str, Any], str]] = {
    "no offsets": ({"offsets": None}, "must hold the arrays offsets, points and pen_up; offsets missing"),
    "no points": ({"points": None}, "points missing"),
    "no pen": ({"pen_up": None}, "pen_up missing"),
    "offsets too far": ({"offsets": [0, 3, 6]}, "from 0 to 5, as there are that many points; they go from 0 to 6"),
    "offsets too short": ({"offsets": [0, 3]}, "they go from 0 to 3"),
    "offsets late": ({"offsets": [1, 3, 5]}, "they go from 1 to 5"),
    "offsets descend": ({"offsets": [0, 4, 3, 5]}, "sequence 2 has -1"),
    "empty sequence": ({"offsets": [0, 3, 3, 5]}, "every sequence has at least one point; sequence 2 has 0"),
    "no sequence": ({"offsets": [0], "points": np.zeros((0, 2)), "pen_up": np.zeros(0, int)}, "holds no sequence"),
    "no offset at all": ({"offsets": np.zeros(0, int)}, "one more than there are sequences"),
    "real offsets": ({"offsets": [0.0, 3.0, 5.0]}, "offsets must be whole numbers"),
    "huge offsets": ({"offsets": np.array([0, 2**63, 5], np.uint64)}, "offsets must ascend"),
    "points of three": ({"points": np.zeros((5, 3))}, "points must be numbers of shape (N, 2); got float64 (5, 3)"),
    "flat points": ({"points": np.zeros(10)}, "points must be numbers of shape (N, 2)"),
    "words": ({"points": np.full((5, 2), "a")}, "points must be numbers of shape (N, 2)"),
    "complex": ({"points": np.zeros((5, 2), complex)}, "must hold plain numbers or strings; got complex128"),
    "not finite": ({"points": np.array([[0, 0], [1, np.nan], [0, 0], [0, 0], [0, 0]])}, "point 1 has (1, nan)"),
    "infinite": ({"points": np.array([[0, 0], [1, 1], [0, 0], [-np.inf, 0], [0, 0]])}, "point 3 has (-inf, 0)"),
    "absurd": ({"points": np.array([[0, 0], [1, 1], [0, 0], [1e30, 0], [0, 0]])},
               "every coordinate must lie between -1e+06 and 1e+06; point 3 has (1e+30, 0)"),
    "pen too short": ({"pen_up": [0, 1]}, "pen_up of 5 points must have as many values; got int64 (2,)"),
    "pen of two": ({"pen_up": [0, 1, 2, 0, 1]}, "pen_up must be 0 or 1; got 2 at point 2"),
    "names too few": ({"names": ["a"]}, "2 sequences must have as many names; got 1"),
    "names of numbers": ({"names": [1, 2]}, "must be a list of strings"),
    "names not UTF-8": ({"names": np.array([b"\xff", b"a"])}, "is not UTF-8"),
    "split too short": ({"split": ["train"]}, "2 sequences must have as many values of split; got 1"),
    "archive, pen not packed": ({"dxy": np.zeros((5, 2), np.int16), "points": None}, "must be 1 byte, a bit per point"),
    "archive, start": ({"dxy": np.zeros((5, 2), np.int16), "pen_up": np.zeros(1, np.uint8), "start": [1, 2]},
                       "start must have shape (2, 2)"),
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


def npy(shape: tuple[int, ...], body: bytes = b"", descr: str = "<f8") -> bytes:
    """An .npy file that declares a shape of its own."""
    header = str({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (64 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize("content", [
    npy((1 << 50, 2)), npy((1 << 62, 1 << 62)), npy((-1, 2)), npy((4, 2), bytes(63)), npy((2, 2), bytes(64)),
    npy((5, 2), descr="|S0"), npy((5, 2), bytes(80), "|V8"), b"\x93NUMPY\x03\x00", b"\x93NUMPY\x01\x00\xff",
    b"", b"junk" * 9,
], ids=str)  # fmt: skip
def test_npz_that_lies_about_its_arrays(tmp_path: Path, content: bytes) -> None:
    path = Path(npz(tmp_path / "s.npz", **arrays(points=None)))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("points.npy", content)
    with pytest.raises(InputError, match=r"s\.npz"):
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
    with pytest.raises(InputError, match="format strokes needs data, and none was named"):
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


def test_text_is_not_strokes_and_the_reverse() -> None:
    with pytest.raises(
        InputError, match="format manual is text; pen strokes have one of strokes, iamondb, handwritten"
    ):
        load_strokes(DataConfig(format="manual"))
    for name in ("strokes", "iamondb", "handwritten"):
        with pytest.raises(InputError, match=f"format {name} is pen strokes, and text was expected"):
            load_corpus(config("x", format=name))


@pytest.mark.parametrize(("field", "value", "why"), [
    ("min_points", 1, "data.min_points must be at least 2"), ("split_seed", -1, "data.split_seed must lie between"),
    ("lines", 0, "data.lines must be at least 3"),
])  # fmt: skip
def test_settings(field: str, value: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        load_strokes(DataConfig(**{"format": "handwritten", field: value}))  # type: ignore[arg-type]


def test_bound_of_coordinates_fits_the_archive() -> None:
    """The longest step between two allowed points must fit into 16 bits."""
    assert np.iinfo(np.int16).max >= 2 * iamondb.LARGEST_COORDINATE


def test_script_without_a_guard_ends_with_one_clear_error(tmp_path: Path) -> None:
    """Workers import the script that started them; where it starts workers again, they die, and nothing may hang."""
    put(tmp_path / "lines", {f"a-{k:02d}.xml": GOOD for k in range(12)})
    (tmp_path / "script.py").write_text(
        "import os\n"
        "from hmrnn.config import DataConfig\n"
        "from hmrnn.data import iamondb, load_strokes\n"
        "iamondb._BATCH = 1\n"
        "os.sched_getaffinity = lambda pid: {0, 1}\n"
        "load_strokes(DataConfig(format='iamondb', path=('lines',), min_points=2))\n"
    )
    command = [sys.executable, "script.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "InputError: a process that parses line files has ended early" in result.stderr
    assert 'if __name__ == "__main__":' in result.stderr


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tar(tmp_path / "l.tar", {"\udcff-01.xml": GOOD, "a\n/b\udcfe-02.xml": b"", "a-03.xml": GOOD}, "w")
    for _ in range(2):  # read, and from the cache
        file = read_collection(config(path))
        assert file.strokes.names == ("\\udcff-01", "a-03")
        assert file.skipped == ("l.tar/a\\n/b\\udcfe-02.xml: it is empty",)
    with pytest.raises(InputError, match="names must be text that UTF-8 can write"):
        Strokes.of([steps(line(3))], ["\udcff"])
