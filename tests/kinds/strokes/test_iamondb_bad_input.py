"""Bad IAM-OnDB data: a broken line file is reported and skipped, all else is a clear error; nothing is unpacked."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from lines import collection, config, line, members, put, steps, tar, xml

from hmrnn import InputError
from hmrnn.kinds.strokes import iamondb
from hmrnn.kinds.strokes.corpus import load_strokes, read_collection
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.utils import archives

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
    "no x": (stroke('<Point y="3"/>'), "point 1 needs an integer up to 16383 as its x; got none"),
    "no y": (
        stroke('<Point x="1" y="3"/><Point x="3"/>'),
        "point 2 needs an integer up to 16383 as its y; got none",
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
        ("empty", "holds no part of IAM-OnDB"),
        ("empty.tar.gz", "there is no line of IAM-OnDB in .*empty.tar.gz"),
        ("other.tar.gz", "there is no line of IAM-OnDB"),
        ("nowhere", "there is no file or folder .*nowhere"),
        ("x.pdf", "IAM-OnDB is read from a folder, tar archives"),
    ):
        with pytest.raises(InputError, match=why):
            load_strokes(config(tmp_path / name))
    with pytest.raises(InputError, match=r"^data\.path\b"):
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


def test_bound_of_coordinates_fits_the_archive() -> None:
    """The longest step between two allowed points must fit into 16 bits."""
    assert np.iinfo(np.int16).max >= 2 * iamondb.LARGEST_COORDINATE


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tar(tmp_path / "l.tar", {"\udcff-01.xml": GOOD, "a\n/b\udcfe-02.xml": b"", "a-03.xml": GOOD}, "w")
    for _ in range(2):  # read, and from the cache
        file = read_collection(config(path))
        assert file.strokes.names == ("\\udcff-01", "a-03")
        assert file.skipped == ("l.tar/a\\n/b\\udcfe-02.xml: it is empty",)
    with pytest.raises(InputError, match="names must be text that UTF-8 can encode"):
        Strokes.of([steps(line(3))], ["\udcff"])
