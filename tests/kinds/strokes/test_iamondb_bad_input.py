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
from refusals import refused

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


BROKEN = {
    "empty": b"",
    "blank": b" \n",
    "not XML": b"\x89PNG\r\n\x1a\n" + bytes(50),
    "cut off": GOOD[:400],
    "HTML": b"<!DOCTYPE html><html><body>log in first</body></html>",
    "billion laughs": BILLION,
    "external entity": EXTERNAL,
    "undefined entity": stroke("&x;"),
    "unknown encoding": b'<?xml version="1.0" encoding="klingon"?><a/>',
    "no strokes": b"<WhiteboardCaptureSession><StrokeSet/></WhiteboardCaptureSession>",
    "empty strokes": stroke(""),
    "no x": stroke('<Point y="3"/>'),
    "no y": stroke('<Point x="1" y="3"/><Point x="3"/>'),
    "not a number": stroke('<Point x="1" y="nan"/>'),
    "infinite": stroke('<Point x="inf" y="1"/>'),
    "fraction": stroke('<Point x="1.5" y="1"/>'),
    "1e30": stroke('<Point x="1e30" y="1"/>'),
    "too large": stroke('<Point x="16384" y="1"/>'),
    "far below": stroke('<Point x="1" y="-99999"/>'),
    "many digits": stroke(f'<Point x="{"9" * 5000}" y="1"/>'),
    "digits in groups": stroke('<Point x="1_0" y="1"/>'),
    "other digits": stroke('<Point x="1" y="٣"/>'),
    "point outside": b'<S><Point x="1" y="1"/><Stroke><Point x="1" y="1"/></Stroke></S>',
}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "tar"])
def test_broken_files_are_reported_and_the_rest_is_read(tmp_path: Path, packed: bool) -> None:
    lines = collection()
    files = members(lines)
    bad = {f"lineStrokes/z01/z01-000/z01-000-{k:02d}.xml": content for k, content in enumerate(BROKEN.values())}
    path = tar(tmp_path / "l.tar.gz", files | bad) if packed else put(tmp_path / "l", files | bad)
    file = read_collection(config(path))
    assert file.names == tuple(sorted(lines))
    where = f"{path.name}/" if packed else f"{path}/"
    assert sorted(reason.split(": ")[0] for reason in file.skipped) == sorted(f"{where}{name}" for name in bad)
    assert "\n" not in "".join(file.skipped)


def test_strokes_of_one_point_and_lines_of_one_stroke_are_fine(tmp_path: Path) -> None:
    drawn = [[(1, 1)], [(5, 5)], [(2, 9), (3, 9)]]
    put(tmp_path, {"a-01.xml": xml(drawn), "a-02.xml": xml([[(7, 7)]]), "a-03.xml": xml([[(1, 1)], [], [(2, 2)]])})
    file = read_collection(config(tmp_path))
    assert file.skipped == ()
    for got, wanted in zip(file, (drawn, [[(7, 7)]], [[(1, 1)], [(2, 2)]])):
        np.testing.assert_array_equal(got, steps(wanted))


def test_all_files_broken(tmp_path: Path) -> None:
    put(tmp_path, {"a-01.xml": b"<", "a-02.xml": b""})
    with pytest.raises(InputError, match=r"a-01\.xml"):
        load_strokes(config(tmp_path))


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    tar(tmp_path / "empty.tar.gz", {})
    tar(tmp_path / "other.tar.gz", {"readme.md": b"hello"})
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    for name in ("empty", "empty.tar.gz", "other.tar.gz", "nowhere", "x.pdf"):
        with pytest.raises(InputError, match=name):
            load_strokes(config(tmp_path / name))
    with pytest.raises(InputError) as error:
        load_strokes(config())
    assert error.value.setting == "data.path"


def test_files_out_of_reach(tmp_path: Path) -> None:
    put(tmp_path, {"a-01.xml": GOOD})
    (tmp_path / "a-02.xml").mkdir()
    os.symlink(tmp_path / "nowhere.xml", tmp_path / "a-03.xml")
    os.mkfifo(tmp_path / "a-04.xml")  # reading it would wait for ever
    (tmp_path / "a-05.xml").write_bytes(b" " * (archives.LARGEST_MEMBER + 1))
    file = read_collection(config(tmp_path))
    assert file.names == ("a-01",)
    assert [reason.split("/")[-1].split(": ")[0] for reason in file.skipped] == [f"a-0{k}.xml" for k in (2, 3, 4, 5)]


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
    assert set(file.names) == {"a-01", "evil-01", "evil-02", "evil-03"}  # which are read, and stay in memory
    assert all(reason.startswith("l.tar/") for reason in file.skipped)
    assert len(file.skipped) == 3
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".npz") == ["l.tar"]
    assert not Path("/evil-02.xml").exists()


def test_names_of_many_characters(tmp_path: Path) -> None:
    """Nothing on a disk is called so, but a tar archive can hold it."""
    files = members(collection())
    number = "1" * 5000
    names = f"a01-000u-{number}.xml", f"{number}/b-01.xml"
    path = tar(tmp_path / "l.tar", files | {names[0]: GOOD, names[1]: b""}, "w")
    file = read_collection(config(path))
    assert file.names == tuple(sorted(collection()))
    assert [reason.split(": ")[0] for reason in file.skipped] == [names[1][-500:]]


def test_lines_may_be_numbered_by_days(tmp_path: Path) -> None:
    put(tmp_path, {"a-01.xml": GOOD, "a-20260314.xml": xml(line(9))})
    assert read_collection(config(tmp_path)).names == ("a-01", "a-20260314")


def test_the_same_line_twice(tmp_path: Path) -> None:
    put(tmp_path, {"a/a-01.xml": GOOD, "b/a-01.xml": xml(line(9))})
    file = read_collection(config(tmp_path))
    np.testing.assert_array_equal(file[0], steps(line(12)))
    assert "b/a-01.xml: " in file.skipped[0]


@pytest.mark.parametrize("ending", ["tar.gz", "tar", "tar.xz", "tar.bz2"])
def test_tar_that_is_cut_off_anywhere(tmp_path: Path, ending: str) -> None:
    mode = "w:" + ending.partition(".")[2]
    path = tar(tmp_path / f"l.{ending}", members(collection()), mode)
    whole = path.read_bytes()
    last = len(whole.rstrip(b"\0")) if ending == "tar" else len(whole)
    for size in (0, 1, 100, 512, 700, last // 2, last - 1, last // 512 * 512):
        path.write_bytes(whole[: min(size, last - 1)])
        with pytest.raises(InputError, match=rf"l\.{ending}"):
            read_collection(config(path))


def test_damaged_header_does_not_lose_lines_silently(tmp_path: Path) -> None:
    path = tar(tmp_path / "l.tar", {f"a-0{k}.xml": GOOD for k in range(1, 6)}, "w")
    data = bytearray(path.read_bytes())
    place = data.index(b"a-04.xml")
    data[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"l\.tar"):
        read_collection(config(path))


def test_tar_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tar(tmp_path / "l.tar.gz", {"a-01.xml": GOOD, "a-02.xml": b" " * (archives.LARGEST_MEMBER + 1)})
    file = read_collection(config(path))
    assert "a-02.xml: " in file.skipped[0]
    huge = tarfile.TarInfo("a-03.xml")
    huge.size = 1 << 40
    (tmp_path / "h.tar").write_bytes(huge.tobuf() + bytes(4096))
    with pytest.raises(InputError, match=r"h\.tar"):
        read_collection(config(tmp_path / "h.tar"))
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 35
    (tmp_path / "p.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(InputError, match=r"p\.tar"):
        read_collection(config(tmp_path / "p.tar"))


def test_bound_of_coordinates_fits_the_archive() -> None:
    """The longest step between two allowed points must fit into 16 bits."""
    assert np.iinfo(np.int16).max >= 2 * iamondb.LARGEST_COORDINATE


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tar(tmp_path / "l.tar", {"\udcff-01.xml": GOOD, "a\n/b\udcfe-02.xml": b"", "a-03.xml": GOOD}, "w")
    for _ in range(2):  # read, and from the cache
        file = read_collection(config(path))
        assert file.names == ("\\udcff-01", "a-03")
        assert [reason.split(": ")[0] for reason in file.skipped] == ["l.tar/a\\n/b\\udcfe-02.xml"]
    with refused():
        Strokes.of([steps(line(3))], ["\udcff"])
