"""Text corpora: formats, splits, and bad input."""

import bz2
import dataclasses
import gzip
import lzma
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import PROSE, decoded, ptb, write

from hmrnn import InputError
from hmrnn.kinds.text.corpus import load_corpus, read_symbols_and_spaces
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import archives
from refusals import refused

# Formats


def test_text_and_its_split(tmp_path: Path) -> None:
    path = write(tmp_path / "prose.txt", PROSE)
    corpus = load_corpus(TextData(path=(path,), valid_fraction=0.1, test_fraction=0.15))
    assert decoded(corpus) == (PROSE[:150], PROSE[150:170], PROSE[170:])
    assert corpus.vocabulary == Vocabulary("characters", tuple(sorted(set(PROSE))))
    assert corpus.name == "prose.txt"
    assert corpus.replaced == {"train": 0, "valid": 0, "test": 0}


@pytest.mark.parametrize("block", [1, 2, 3, 5, 64])
def test_characters_cut_by_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    corpus = load_corpus(TextData(path=(write(tmp_path / "prose.txt", PROSE),)))
    assert "".join(decoded(corpus)) == PROSE


def test_bytes(tmp_path: Path) -> None:
    content = PROSE.encode() + b"\xff\x00\xfe"
    corpus = load_corpus(TextData(path=(write(tmp_path / "prose.txt", content),), bytes=True))
    assert corpus.vocabulary.kind == "bytes"
    values = np.array([*corpus.vocabulary.symbols, 0])
    assert bytes(values[corpus.train].tolist()) == content[: len(corpus.train)]
    assert corpus.vocabulary.unknown
    assert corpus.replaced == {"train": 0, "valid": 0, "test": 3}


def test_several_files_and_directories_in_order(tmp_path: Path) -> None:
    write(tmp_path / "d" / "b.txt", "2" * 30)
    write(tmp_path / "d" / "a" / "z.txt.gz", gzip.compress(b"1" * 20))
    write(tmp_path / "d" / "c.md", "not read")
    last = write(tmp_path / "0.txt", "3" * 10)
    corpus = load_corpus(TextData(path=(str(tmp_path / "d"), last), unseen="replace"))
    assert "".join(decoded(corpus)) == "1" * 20 + "2" * 30 + "3" * 10


def test_a_file_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_UNQUESTIONED", 1 << 20)
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"a" * (4 << 20)))
    with refused():
        load_corpus(TextData(path=(str(path),)))
    monkeypatch.setattr(archives, "_UNQUESTIONED", 8 << 20)
    assert len(load_corpus(TextData(path=(str(path),))).train) > 3 << 20


@pytest.mark.parametrize("block", [1, 2, 1 << 20])
def test_byte_order_mark_is_dropped_and_line_ends_are_one_symbol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    content = b"\xef\xbb\xbf" + b"line\r\n\r\nold\rnew\n" * 10 + b"\r"
    path = write(tmp_path / "prose.txt", content)
    corpus = load_corpus(TextData(path=(path,)))
    assert "".join(decoded(corpus)) == "line\n\nold\nnew\n" * 10 + "\n"
    assert "\r" not in corpus.vocabulary.symbols
    exact = load_corpus(TextData(path=(path,), bytes=True))
    assert np.concatenate([exact.train, exact.valid, exact.test]).tolist() == exact.vocabulary.encode(content).tolist()


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
@pytest.mark.parametrize("names", [("ptb.char.{}.txt", ""), ("ptb.{}.txt", ".xz"), ("{}.txt", "")])
def test_ptb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], block: int) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    parts = "mr. <unk> is N years old\nno it was n't\n", "it is old\n", "a mr.\nso\n"
    for split, part in zip(("train", "valid", "test"), parts):
        content = ptb(part).replace("\n", "\r\n" if split == "valid" else "\n").encode()
        write(tmp_path / "d" / (names[0].format(split) + names[1]), lzma.compress(content) if names[1] else content)
    corpus = load_corpus(TextData(format="ptb", path=(str(tmp_path / "d"),)))
    assert decoded(corpus) == parts
    assert corpus.name == "ptb"
    assert not corpus.vocabulary.unknown


def test_ptb_three_files(tmp_path: Path) -> None:
    parts = "ab\n", "ba\n", "aa\n"
    paths = tuple(write(tmp_path / f"part {n}", ptb(part)) for n, part in enumerate(parts))
    assert decoded(load_corpus(TextData(format="ptb", path=paths))) == parts


def test_text8_splits_by_itself(tmp_path: Path) -> None:
    content = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz ", k=2019))
    path = write(tmp_path / "text8", content)
    corpus = load_corpus(TextData(format="text8", path=(path,), valid_fraction=0.3, test_fraction=0.3))
    assert decoded(corpus) == (content[:1819], content[1819:1919], content[1919:])
    assert len(corpus.vocabulary) == 27
    assert corpus.vocabulary.kind == "characters"


def test_enwik8_splits_by_itself(tmp_path: Path) -> None:
    content = bytes(random.Random(0).choices(range(205), k=2000))
    path = write(tmp_path / "enwik8", content)
    corpus = load_corpus(TextData(format="enwik8", path=(path,), valid_fraction=0.3, test_fraction=0.3))
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (1800, 100, 100)
    assert corpus.vocabulary == Vocabulary("bytes", tuple(range(205)))
    assert corpus.train.tobytes() == content[:1800]


# Unseen symbols


def test_vocabulary_is_that_of_training(tmp_path: Path) -> None:
    path = write(tmp_path / "prose.txt", "ab" * 45 + "axbxy" + "bazab")
    corpus = load_corpus(TextData(path=(path,)))
    assert corpus.vocabulary == Vocabulary("characters", ("a", "b"), unknown=True)
    assert decoded(corpus)[1:] == ("a\ufffdb\ufffd\ufffd", "ba\ufffdab")
    assert corpus.replaced == {"train": 0, "valid": 3, "test": 1}


def test_rare_symbols_become_the_unknown_symbol(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "abcab" * 17 + "xyzxa" + "bbaxa" + "xcccx")  # validation and test: 5 symbols each
    config = TextData(path=(path,), min_count=2)
    corpus = load_corpus(config)
    assert corpus.vocabulary.symbols == ("a", "b", "c", "x")
    assert corpus.vocabulary.unknown
    assert corpus.replaced == {"train": 2, "valid": 0, "test": 0}
    assert corpus.vocabulary.decode(corpus.train[-5:]) == "x\ufffd\ufffdxa"
    assert load_corpus(dataclasses.replace(config, min_count=3)).vocabulary.symbols == ("a", "b", "c")
    assert load_corpus(dataclasses.replace(config, min_count=1)).vocabulary.symbols == ("a", "b", "c", "x", "y", "z")
    with refused("data.min_count"):
        load_corpus(dataclasses.replace(config, min_count=99))


def test_unseen_symbols_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "prose.txt", "ab" * 45 + "axbxy" + "bazab")
    with refused():
        load_corpus(TextData(path=(path,), unseen="error"))


def test_many_symbols_take_two_bytes(tmp_path: Path) -> None:
    content = "".join(map(chr, range(0x4E00, 0x4E00 + 300))) * 20
    corpus = load_corpus(TextData(path=(write(tmp_path / "prose.txt", content),)))
    assert corpus.train.dtype == np.uint16
    assert "".join(decoded(corpus)) == content


# Other text for a vocabulary that is there


def test_read_symbols_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 3)
    vocabulary = Vocabulary("bytes", (97, 98))
    told: list[tuple[int, int]] = []
    path = write(tmp_path / "1", b"abbab")
    config = TextData(bytes=True)
    symbols, _ = read_symbols_and_spaces([path], vocabulary, config, progress=lambda done, of: told.append((done, of)))
    assert symbols.dtype == np.uint8
    assert symbols.tolist() == [0, 1, 1, 0, 1]
    assert told[-1] == (5, 5)
    with refused():
        read_symbols_and_spaces([write(tmp_path / "2", b"abbacc")], vocabulary, config)


# Bad input


@pytest.mark.parametrize(
    ("format", "files", "paths"),
    [
        ("text", {}, []), ("ptb", {}, []), ("text8", {}, []),
        ("text", {}, ["nowhere.txt"]), ("enwik8", {}, ["."]), ("text", {"d/notes.md": PROSE.encode()}, ["d"]),
        ("text8", {"a": b"a" * 99}, ["a", "a"]), ("text8", {"a": b"a" * 99 + b"A"}, ["a"]),
        ("enwik8", {"enwik8.zip": b"PK" * 200}, ["enwik8.zip"]),
        ("ptb", {"ptb.char.train.txt": b"a b"}, ["."]), ("ptb", {"a": b"a b"}, ["a"] * 2),
        ("ptb", {"a": b"a _ b\n", "b": b"a"}, ["a", "a", "b"]),
        *(("ptb", {"a": wrong}, ["a"] * 3) for wrong in (b"ab c", b"a  b", b"a \t b")),
        *(("text", {"a": short}, ["a"]) for short in (b"", b"\xef\xbb\xbf", b"a" * 30)),
    ],
)  # fmt: skip
def test_files_that_are_not_as_the_format_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, files: dict[str, bytes], paths: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        write(tmp_path / name, content)
    with pytest.raises(InputError) as refused:
        load_corpus(TextData(format=format, path=tuple(paths)))
    assert refused.value.setting == "data.path" or any(path in str(refused.value) for path in paths)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with refused("data.path"):
        load_corpus(TextData(path=(str(tmp_path / "pipe"),)))


def test_more_symbols_than_bytes(tmp_path: Path) -> None:
    with refused():
        load_corpus(TextData(path=(write(tmp_path / "prose.txt", PROSE),), bytes=True, symbols="猫"))


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"\xef\xbb\xbfgood \xff bad", 8), ("good é".encode() + b"\xe2\x82bad", 7), (b"cut \xe2\x82", 4),
        (b"\x89PNG\r\n\x1a\n", 0), ("wide".encode("utf-16-le"), 1),
    ],
)  # fmt: skip
def test_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, offset: int, block: int) -> None:
    monkeypatch.setattr(archives, "_BLOCK", block)
    with refused():
        load_corpus(TextData(path=(write(tmp_path / "prose.txt", content),)))


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2"])
def test_damaged_archive(tmp_path: Path, suffix: str) -> None:
    pack = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    for content in (PROSE.encode(), pack(PROSE.encode())[:-12]):
        with refused():
            load_corpus(TextData(path=(write(tmp_path / f"prose.txt{suffix}", content),)))


def test_memory_is_a_few_bytes_per_symbol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 1 << 16)
    path = write(tmp_path / "long.txt", "all work and no play\n" * 400_000)  # 8.4 MB; 34 MB in code points
    told: list[tuple[int, int]] = []
    tracemalloc.start()
    try:
        corpus = load_corpus(TextData(path=(path,)), progress=lambda done, of: told.append((done, of)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(corpus.train), corpus.train.dtype) == (7_560_000, np.uint8)
    assert told[-1] == (8_400_000, 8_400_000)
    assert peak < 40e6
