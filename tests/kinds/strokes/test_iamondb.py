"""IAM-OnDB from a folder, tar archives or our own archive: the same lines, whatever they lie in."""

from __future__ import annotations

import dataclasses
import lzma
from pathlib import Path

import numpy as np
import pytest
from lines import FORMS, collection, config, line, members, put, steps, tar, xml

from hmrnn import InputError
from hmrnn.cli import main as cli
from hmrnn.config import Config
from hmrnn.kinds.strokes import iamondb
from hmrnn.kinds.strokes.corpus import load_strokes, read_collection, write_archive
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.kinds.strokes.presets import PRESETS
from hmrnn.kinds.strokes.settings import StrokeData
from hmrnn.kinds.strokes.strokes import Strokes
from refusals import refused

LINES = collection()


def check(found: Strokes, lines: dict[str, list[list[tuple[int, int]]]]) -> None:
    assert found.names == tuple(sorted(lines))
    for name, got in zip(found.names, found):
        np.testing.assert_array_equal(got, steps(lines[name]), err_msg=name)


def sources(kind: str, place: Path) -> list[Path]:
    files = members(LINES)
    if kind == "folder":
        return [put(place / "iam", files)]
    if kind == "one tar":
        return [tar(place / "everything.tar", files, "w")]
    if kind == "official download":  # archives side by side, the sets in one of them
        inside = {part: {n: c for n, c in files.items() if n.startswith(part)} for part in ("lineStrokes", "ascii")}
        (place / "iam").mkdir()
        tar(place / "iam" / "lineStrokes-all.tar.gz", inside["lineStrokes"])
        tar(place / "iam" / "ascii-all.tar.gz", inside["ascii"])
        tar(place / "iam" / "task1.tar.gz", {n: c for n, c in files.items() if n.endswith("_v.txt") or "set" in n})
        tar(place / "iam" / "original-xml-all.tar.gz", {"original/a01/a01-000/strokesz.xml": b"<not read/>"})
        return [place / "iam"]
    folder = put(place / "iam", {n: c for n, c in files.items() if not n.endswith(".txt")})
    sets = [put(place / "sets", {f"{n}.txt": files[f"{n}.txt"]}) / f"{n}.txt" for n in FORMS]
    transcripts = tar(place / "words.tgz", {n: c for n, c in files.items() if n.startswith("ascii")})
    return [folder, transcripts, *sets]


@pytest.mark.parametrize("kind", ["folder", "one tar", "official download", "one by one"])
def test_layouts(tmp_path: Path, kind: str) -> None:
    paths = sources(kind, tmp_path)
    file = read_collection(config(*paths))
    check(file, LINES)
    assert file.skipped == ()
    texts = dict(zip(file.names, file.texts))
    assert (texts["a01-000u-01"], texts["a01-000u-02"]) == ("the first line", "the second")
    assert texts["a01-000u-03"] == texts["b02-003-01"] == ""
    forms = {form: name for name, listed in FORMS.items() for form in listed}
    assert file.split == tuple(forms.get(name.rsplit("-", 1)[0], "none") for name in file.names)


def test_a_folder_unpacked_in_part_is_completed_from_the_archive_beside_it(tmp_path: Path) -> None:
    files = members(LINES)
    lines = {name: content for name, content in files.items() if name.startswith("lineStrokes")}
    folder = put(tmp_path / "iam", dict(list(lines.items())[:3]) | {"trainset.txt": files["trainset.txt"]})
    cut = folder / list(lines)[2]  # what an interrupted tar leaves
    cut.write_bytes(cut.read_bytes()[:300])
    tar(folder / "lineStrokes-all.tar.gz", lines)
    tar(folder / "ascii-all.tar.gz", {name: content for name, content in files.items() if name.startswith("ascii")})
    tar(folder / "task1.tar.gz", {name: content for name, content in files.items() if "set" in name})
    file = read_collection(config(folder))
    check(file, LINES)
    assert [reason.split(": ")[0] for reason in file.skipped] == [str(cut)]
    assert set(file.split) == {*FORMS, "none"}


def test_archives_are_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "nest" / "sub").mkdir(parents=True)
    tar(tmp_path / "nest" / "sub" / "lineStrokes-all.tar.gz", members(LINES))
    check(read_collection(config(tmp_path / "nest")), LINES)


def test_what_lies_unpacked_counts(tmp_path: Path) -> None:
    files = members(LINES)
    folder = put(tmp_path / "iam", files)
    tar(folder / "lineStrokes-all.tar.gz", files)
    assert read_collection(config(folder)).skipped == ()
    changed = {name: files[name] + b"\na01-001" for name in ("ascii/a01/a01-000/a01-000u.txt", "trainset.txt")}
    changed["lineStrokes/a01/a01-000/a01-000u-01.xml"] = xml(line(9))
    tar(folder / "lineStrokes-all.tar.gz", files | changed)
    file = read_collection(config(folder))
    check(file, LINES)
    assert sorted(reason.split(": ")[0] for reason in file.skipped) == [
        f"lineStrokes-all.tar.gz/{name}" for name in sorted(changed)
    ]
    assert file.split[file.names.index("a01-001-01")] == "testset_v"


def test_official_split(tmp_path: Path) -> None:
    corpus = load_strokes(config(*sources("folder", tmp_path), split="official", min_points=2))
    assert {name.rsplit("-", 1)[0] for name in corpus.train.names} == set(FORMS["trainset"])
    assert {name.rsplit("-", 1)[0] for name in corpus.valid.names} == set(FORMS["testset_v"])
    assert {name.rsplit("-", 1)[0] for name in corpus.test.names} == set(FORMS["testset_f"])
    assert corpus.name == "iamondb, official split"


def test_the_papers_split_takes_all_lines_that_are_long_enough(tmp_path: Path) -> None:
    lines = {f"a01-00{k}-01": line(296 + k, k) for k in range(10)} | {f"b01-{k:03d}-01": line(301) for k in range(40)}
    corpus = load_strokes(config(put(tmp_path / "iam", members(lines))))
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [41, 2, 3]
    assert corpus.short == 4
    assert min(corpus.train.lengths.min(), corpus.valid.lengths.min(), corpus.test.lengths.min()) >= 300


def test_official_split_needs_its_lists(tmp_path: Path) -> None:
    files = {n: c for n, c in members(LINES).items() if not n.endswith(".txt")}
    for _ in range(2):  # without any, and with one of them
        with pytest.raises(InputError) as error:
            load_strokes(config(put(tmp_path / "iam", files), split="official", min_points=2))
        assert error.value.setting == "data.split"
        files["trainset.txt"] = b"a01-000u\n"


def test_an_archive_in_a_folder_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    archive = tmp_path / "alone" / "lines.npz"
    archive.parent.mkdir()
    write_archive(config(*sources("folder", tmp_path)), archive)
    with refused():
        load_strokes(config(archive.parent))
    put(archive.parent, members(LINES))
    for _ in range(2):  # read, then from the cache
        file = read_collection(config(archive.parent))
        check(file, LINES)
        (passed,) = file.skipped
        assert passed.startswith(f"{archive}: ")


def test_archive_round_trip(tmp_path: Path) -> None:
    paths = sources("folder", tmp_path)
    archive = tmp_path / "lines.npz"
    assert write_archive(config(*paths), archive) == len(LINES)
    packed = tmp_path / "lines.npz.xz"
    packed.write_bytes(lzma.compress(archive.read_bytes()))
    whole = read_collection(config(*paths))
    for path in (archive, packed):
        again = read_collection(config(path))
        check(again, LINES)
        assert (again.split, again.texts) == (whole.split, whole.texts)
    for place in (archive, tmp_path / "lines.bin"):
        with refused():
            write_archive(config(*paths), place)


def test_one_line_file(tmp_path: Path) -> None:
    (tmp_path / "a01-000u-01.xml").write_bytes(xml(LINES["a01-000u-01"]))
    strokes = read_strokes(tmp_path / "a01-000u-01.xml")
    np.testing.assert_array_equal(strokes[0], steps(LINES["a01-000u-01"]))
    assert strokes.names == ("a01-000u-01",)
    (tmp_path / "b.xml").write_text("<a>")
    with pytest.raises(InputError, match=r"b\.xml"):
        read_strokes(tmp_path / "b.xml")


def test_folder_and_archive_are_read_as_strokes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without naming the format: an archive by ``read_strokes``, both by a preset whose parts are drawn."""
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    files = members(LINES)
    for path in (put(tmp_path / "iam", files), tar(tmp_path / "lineStrokes-all.tar.gz", files)):
        if path.is_file():
            check(read_strokes(path), LINES)
        preset = Config.named(str(path))[1]
        assert preset == dataclasses.replace(PRESETS["strokes"], data=StrokeData("strokes", (str(path),)))
        corpus = load_strokes(preset.data)
        assert {*corpus.train.names, *corpus.valid.names, *corpus.test.names} == set(LINES)
    for folder in (tmp_path / "iam", "/"):
        with refused():
            read_strokes(folder)
    broken = tar(tmp_path / "lineStrokes-some.tar", {**files, "lineStrokes/a01/a01-000/a01-000u-02.xml": b"<"}, "w")
    with pytest.raises(InputError, match=r"a01-000u-02\.xml"):
        read_strokes(broken)


def test_progress_reaches_its_end_and_a_broken_file_is_skipped(tmp_path: Path) -> None:
    files = members(LINES)
    files["lineStrokes/a01/a01-000/a01-000u-02.xml"] = b"<broken"
    others = {name: strokes for name, strokes in LINES.items() if name != "a01-000u-02"}
    told: list[tuple[int, int]] = []
    for path in (put(tmp_path / "iam", files), tar(tmp_path / "iam.tar.gz", files)):
        file = read_collection(config(path), lambda done, of: told.append((done, of)))
        check(file, others)
        assert len(file.skipped) == 1
        assert "a01-000u-02.xml: " in file.skipped[0]
        done, of = told[-1]
        assert done == of > 0


def test_read_once_and_again_when_it_changes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = sources("folder", tmp_path)
    check(read_collection(config(folder)), LINES)
    with monkeypatch.context() as patch:
        patch.setattr(iamondb, "read_iamondb", lambda *_: pytest.fail("was read again"))
        check(read_collection(config(folder)), LINES)
        (entry,) = cache.iterdir()
    more = LINES | {"f01-000-01": line(9)}
    put(folder, members(more))
    check(read_collection(config(folder)), more)
    (new,) = cache.iterdir()
    assert new != entry
    new.write_bytes(new.read_bytes()[:-30])
    check(read_collection(config(folder)), more)
    assert list(cache.iterdir()) == [new]


def test_skipped_files_are_remembered_by_the_cache(tmp_path: Path) -> None:
    folder = put(tmp_path / "iam", members(LINES) | {"lineStrokes/x01/x01-000/x01-000-01.xml": b""})
    first, again = (load_strokes(config(folder, min_points=2)) for _ in range(2))
    assert first.train.skipped == again.train.skipped
    assert "x01-000-01.xml: " in again.describe()


def test_files_that_change_while_they_are_read(tmp_path: Path, cache: Path) -> None:
    (folder,) = sources("folder", tmp_path)

    def meanwhile(done: int, of: int) -> None:
        put(folder, {"trainset.txt": b"b02-003"})

    with refused():
        read_collection(config(folder), meanwhile)
    assert not cache.exists()


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (folder,) = sources("folder", tmp_path)
    with pytest.raises(InputError) as error:
        read_collection(config(folder, cache=str(folder / "trainset.txt" / "c")))
    assert error.value.setting == "data.cache"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {name: line(310 + k, k) for k, name in enumerate(LINES)} | {"f01-000-01": line(5)}
    folder = put(tmp_path / "iam", members(long) | {"lineStrokes/a/broken-01.xml": b"<"})
    archive = tmp_path / "lines.npz"
    assert cli.run(["data", "iamondb", str(folder), "--archive", str(archive)]) == 0
    said = capsys.readouterr().out
    assert "16 lines of 310 to 325 points" in said
    assert "broken-01.xml" in said
    assert cli.run(["data", "iamondb", str(archive), "--split", "official"]) == 0
    assert "train        6 lines," in capsys.readouterr().out
    with refused():
        cli.run(["data", "demo", "--archive", str(tmp_path / "x.npz")])
