"""The cache of corpora: read once, rebuilt when it must be, never half written."""

import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from corpora import PROSE, decoded, write

from hmrnn import InputError
from hmrnn.config import DataConfig
from hmrnn.kinds.text import corpus as text
from hmrnn.kinds.text.corpus import Corpus, load_corpus
from hmrnn.utils import archives
from hmrnn.utils.cache import entry_names, source_state


def test_read_once(tmp_path: Path, cache: Path) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))
    told: list[tuple[int, int]] = []
    first = load_corpus(config, progress=lambda done, of: told.append((done, of)))
    size = len(PROSE.encode())
    assert told == [(size, 2 * size), (2 * size, 2 * size)]
    again = load_corpus(config, progress=lambda done, of: pytest.fail("was read again"))
    assert decoded(again) == decoded(first)
    assert (again.name, again.vocabulary, again.replaced) == (first.name, first.vocabulary, first.replaced)
    assert len(list(cache.iterdir())) == 1


def test_rebuilt_when_a_source_changes(tmp_path: Path, cache: Path) -> None:
    config = DataConfig(path=(write(tmp_path / "d" / "1.txt", PROSE),))
    load_corpus(config)
    before = list(cache.iterdir())
    write(tmp_path / "d" / "1.txt", PROSE.upper())
    os.utime(tmp_path / "d" / "1.txt", ns=(1, 1))
    assert "".join(decoded(load_corpus(config))) == PROSE.upper()
    assert len(list(cache.iterdir())) == 1
    assert list(cache.iterdir()) != before


def test_rebuilt_when_a_directory_changes(tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "d" / "1.txt", PROSE)
    config = DataConfig(path=(str(tmp_path / "d"),))
    load_corpus(config)
    write(tmp_path / "d" / "2.txt", "on the mat")
    assert "".join(decoded(load_corpus(config))) == PROSE + "on the mat"
    assert len(list(cache.iterdir())) == 1


def test_other_options_are_other_entries(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "prose.txt", PROSE)
    assert len(load_corpus(DataConfig(path=(path,))).valid) == 10
    assert len(load_corpus(DataConfig(path=(path,), valid_fraction=0.1)).valid) == 20
    assert load_corpus(DataConfig(path=(path,), bytes=True)).vocabulary.kind == "bytes"
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut", "longer", "not json", "other fields", "bad vocabulary", "gone"])
def test_damaged_entry_is_rebuilt(tmp_path: Path, cache: Path, damage: str) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))
    load_corpus(config)
    (entry,) = cache.iterdir()
    about, symbols = entry / "corpus.json", entry / "symbols.bin"
    if damage == "cut":
        symbols.write_bytes(symbols.read_bytes()[:-1])
    elif damage == "longer":
        symbols.write_bytes(symbols.read_bytes() + b"\0")
    elif damage == "not json":
        about.write_bytes(about.read_bytes()[:-20])
    elif damage == "other fields":
        about.write_text("{}")
    elif damage == "bad vocabulary":
        about.write_text(about.read_text().replace('"characters"', '"words"'))
    else:
        symbols.unlink()
    assert "".join(decoded(load_corpus(config))) == PROSE
    assert list(cache.iterdir()) == [entry]
    load_corpus(config, progress=lambda done, of: pytest.fail("was not repaired"))


def test_crash_leaves_nothing_half_written(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))

    def crash(value: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(text, "to_json", crash)
        with pytest.raises(KeyboardInterrupt):
            load_corpus(config)
    assert list(cache.iterdir()) == []
    assert "".join(decoded(load_corpus(config))) == PROSE


def test_remains_of_a_killed_process_are_removed(tmp_path: Path, cache: Path) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))
    load_corpus(config)
    (entry,) = cache.iterdir()
    key = entry.name.split("-")[0]
    dead, alive = cache / f".{key}-dead", cache / f".{key}-alive"
    write(dead / "symbols.bin", "half")
    write(alive / "symbols.bin", "half")
    os.utime(dead, (1, 1))
    write(tmp_path / "prose.txt", PROSE * 2)
    load_corpus(config)
    assert not dead.exists()
    assert alive.exists()


def test_two_at_once(tmp_path: Path, cache: Path) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))
    others: list[Corpus] = []

    def meanwhile(done: int, of: int) -> None:
        if done == of:
            others.append(load_corpus(config))

    corpus = load_corpus(config, progress=meanwhile)
    assert decoded(corpus) == decoded(others[0])
    assert "".join(decoded(corpus)) == PROSE
    assert len(list(cache.iterdir())) == 1


def test_entry_removed_just_after_it_was_written(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(path=(write(tmp_path / "prose.txt", PROSE),))
    publish = text._publish
    removals = iter([True, True, False])

    def publish_and_remove(temporary: Path, entry: Path, key: str) -> None:
        publish(temporary, entry, key)
        if next(removals, True):
            shutil.rmtree(entry)

    monkeypatch.setattr(text, "_publish", publish_and_remove)
    assert "".join(decoded(load_corpus(config))) == PROSE
    (entry,) = cache.iterdir()
    shutil.rmtree(entry)
    with pytest.raises(InputError, match="removed or damaged as soon as it is written"):
        load_corpus(config)


def test_source_changes_while_it_is_read(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "prose.txt", PROSE)

    def meanwhile(done: int, of: int) -> None:
        write(tmp_path / "prose.txt", PROSE + "and more")

    with pytest.raises(InputError, match="changed while it was read"):
        load_corpus(DataConfig(path=(path,)), progress=meanwhile)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("change", ["\u2603" * 50, "", None], ids=["grows", "is as long", "shrinks"])
def test_source_changes_between_its_two_readings(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, change: str | None
) -> None:
    """The second reading fails on symbols that the first did not see; the message says that the file changed."""
    prose = "abc " * 100 + "\u00e9"  # a symbol that the training part lacks
    path = Path(write(tmp_path / "prose.txt", prose))
    split = text._split

    def change_and_split(*arguments: Any) -> tuple[int, int, int]:
        path.write_text(prose[:-60] if change is None else prose + change if change else prose.replace("a", "z"))
        return split(*arguments)

    monkeypatch.setattr(text, "_split", change_and_split)
    with pytest.raises(InputError, match=r"prose\.txt changed while it was read; try again when it is complete"):
        load_corpus(DataConfig(path=(str(path),)))
    assert list(cache.iterdir()) == []


def test_source_that_changes_unseen(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length tells, where the time of the file does not."""
    path = Path(write(tmp_path / "prose.txt", PROSE))
    monkeypatch.setattr(text, "source_state", lambda sources: [("prose.txt", 1, 1)])
    split = text._split
    for changed in (PROSE + PROSE, PROSE[:-60]):
        monkeypatch.setattr(text, "_split", lambda *a, changed=changed: path.write_text(changed) and split(*a))
        with pytest.raises(InputError, match="changed while it was read"):
            load_corpus(DataConfig(path=(str(path),)))
        path.write_text(PROSE)


def test_where_the_cache_is(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "prose.txt", PROSE)
    load_corpus(DataConfig(path=(path,), cache=str(tmp_path / "given")))
    assert len(list((tmp_path / "given").iterdir())) == 1
    assert not cache.exists()
    monkeypatch.delenv("HMRNN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    load_corpus(DataConfig(path=(path,)))
    assert len(list((tmp_path / "home" / ".cache" / "hmrnn").iterdir())) == 1


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / "prose.txt", PROSE)
    with pytest.raises(InputError, match=r"^data\.cache\b"):
        load_corpus(DataConfig(path=(path,), cache=f"{path}/cache"))


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 1 << 16)
    path = write(tmp_path / "long.txt", "all work and no play\n" * 400_000)  # 8.4 MB; 34 MB in code points
    tracemalloc.start()
    try:
        corpus = load_corpus(DataConfig(path=(path,)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(corpus.train) == 7_560_000
    assert peak < 20e6  # 9 MB for the first positions of all code points, 4 MB for their indices, and a few blocks


def test_a_source_out_of_reach_is_told_from_every_other(tmp_path: Path) -> None:
    path = tmp_path / "prose.txt"
    states = [source_state([path])]
    for content, changed in (("", 0), ("", 1), ("ab", 1)):
        write(path, content)
        os.utime(path, ns=(changed, changed))
        states.append(source_state([path]))
    assert len({entry_names("key", 1, state) for state in states}) == 4
    assert len({entry_names("key", 1, state)[0] for state in states}) == 1  # that of the corpus, by which old ones go


def test_a_source_that_is_gone_when_it_is_read(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "find_sources", lambda config: [tmp_path / "prose.txt"])
    with pytest.raises(InputError, match=r"prose\.txt cannot be read \(No such file or directory\)"):
        load_corpus(DataConfig(path=("prose.txt",)))
    assert list(cache.iterdir()) == []
