"""Text as users have it, with typographic signs or line ends from elsewhere, reaches a model as text it knows."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hmrnn
import tiny
from hmrnn import InputError
from hmrnn.config import Config
from hmrnn.config.json import from_json
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import inputs


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model() -> hmrnn.TextModel:
    """A model that knows " abcdefgh" in the directory "model" of the working directory."""
    return tiny.saved_model(Path("model"))


@pytest.fixture
def of_bytes() -> hmrnn.TextModel:
    """A model of bytes in the directory "bytes"."""
    return tiny.saved_model(Path("bytes"), tiny.BYTES, bytes=True)


def streamed(command: tiny.Command, line: str, name: str) -> list[Any]:
    """What segment --stream writes of a file."""
    out = Path(f"found {len(list(Path().iterdir()))}")
    command(f"segment {line} --stream {name} --out", out)
    return [json.loads(one) for one in (out / f"{name}.jsonl").read_text().splitlines()]


def test_plain_of_evaluate(model: hmrnn.TextModel, of_bytes: hmrnn.TextModel, command: tiny.Command) -> None:
    text = tiny.text(300)
    Path("fancy.txt").write_text(text.replace("a", "ä").replace(" ", "\u00a0"))
    assert "--plain" in command.refused("evaluate -m model --file fancy.txt")
    found = command.json("evaluate -m model --streams 1 --file fancy.txt --plain --json")
    assert found["bits"] == pytest.approx(model.score(text).bits)
    for line in ("evaluate -m model --plain", "evaluate -m bytes --file fancy.txt --plain"):
        assert command.refused(line).startswith("--plain")


def test_unknown_symbols_of_streams(model: hmrnn.TextModel, command: tiny.Command) -> None:
    """Each is read as one symbol, so that the ends index the file."""
    text = tiny.text(300)
    fancy = text.replace("c", "ç").replace("d", "☃")
    Path("fancy.txt").write_text(fancy)
    for how, named in (("refuse", "☃"), ("skip", "refuse")):
        assert named in command.refused(f"segment -m model --stream fancy.txt --out found --unknown {how}")
    records = streamed(command, "-m model --streams 1", "fancy.txt")
    assert f" {text.count('c') + text.count('d')} of 300 " in command.err
    assert "".join(record["text"] for record in records) == fancy
    assert [end for record in records for end in record["ends"][0]] == model.segment(text.replace("d", " ")).ends(1)


def test_evaluate_says_how_many_symbols_are_unknown(command: tiny.Command) -> None:
    tiny.saved_model(Path("open"), Vocabulary("characters", tuple(" abc"), unknown=True), unseen="replace")
    Path("a.txt").write_text("ab ☃" * 50)
    assert "50 of 200 symbols (25.00%)" in command("evaluate -m open --file a.txt")
    assert command.json("evaluate -m open --file a.txt --json")["unknown"] == 50


def test_lines_of_standard_input_are_read_as_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("-").write_text("not this")
    end, other = os.pipe()
    with open(end, encoding="utf-8") as source, open(other, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", source)
        lines = inputs.read_lines(None, None, "characters")
        sink.write(b"\xef\xbb\xbfa b\r\n")
        assert next(lines) == "a b"  # the pipe is still open
        sink.write("\nc\rd\n\ufeffe\n".encode() + b"\xe9\n")
        assert [next(lines) for _ in range(4)] == ["", "c", "d", "\ufeffe"]  # a mark after the start is text
        with pytest.raises(InputError, match="0xe9"):
            next(lines)


def test_line_ends_from_elsewhere(command: tiny.Command) -> None:
    r"""\r\n and \r are what \n is: on the command line, in files, on standard input and from Python."""
    model = tiny.saved_model(Path("lines"), Vocabulary("characters", tuple("\n abcdefgh")))
    text = tiny.text(120).replace(" a ", "\n")
    expected, ended = model.segment(text), model.segment(text + "\n", primed=False)
    assert "\n" in text
    for end in ("\r\n", "\r"):
        foreign = text.replace("\n", end)
        Path("foreign.txt").write_bytes(b"\xef\xbb\xbf" + (foreign + end).encode())
        assert_same_but_for_line_ends(model.segment(foreign), foreign, expected)
        assert model.generate(foreign, 9, seed=1) == model.generate(text, 9, seed=1)
        for words in ((foreign,), ("--file", "foreign.txt")):
            found = hmrnn.Segmentation.from_json(command("segment -m lines --json", *words))
            assert_same_but_for_line_ends(found, foreign, expected)
            assert command.json("score -m lines --json", *words)["bits"] == pytest.approx(model.score(text).bits)
            records = command.lines("score -m lines --json --lines", *words)
            assert [record["text"] for record in records] == text.split("\n")
        bits = command.json("evaluate -m lines --json --streams 1 --file foreign.txt")["bits"]
        assert bits == pytest.approx(model.score(text + "\n", primed=False).bits)
        records = streamed(command, "-m lines --streams 1", "foreign.txt")
        assert "".join(record["text"] for record in records) == text + "\n"
        assert [end for record in records for end in record["ends"][1]] == ended.ends(2)


def assert_same_but_for_line_ends(found: hmrnn.Segmentation, text: str, expected: hmrnn.Segmentation) -> None:
    """``found`` is of ``text`` itself, and what was read of it gave the numbers of ``expected``."""
    assert found.text == text
    unread = {k for k in range(len(text)) if text[k] == "\ufeff" or text[k : k + 2] == "\r\n"}
    read = [k for k in range(len(text)) if k not in unread]
    for name in ("boundaries", "operations", "norms", "bits"):
        np.testing.assert_allclose(getattr(found, name)[read], getattr(expected, name), atol=1e-4)
    assert not found.boundaries[sorted(unread)].any()


def test_the_segments_of_bytes_are_shown_as_text(of_bytes: hmrnn.TextModel, command: tiny.Command) -> None:
    found = of_bytes.segment("Ça été, 日本 \\x41 \udcff")  # ends in a byte that is not UTF-8
    found.boundaries[:] = 0
    assert found.spaced() == found.words()[0] == found.text == "Ça été, 日本 \\x41 \\xff"
    assert str(found).splitlines()[1] == "Ça été, 日本 \\x41 \\xff"
    assert "Ça été, 日本" in found._repr_html_()
    found.boundaries[0, 0] = found.boundaries[1, 1] = 1  # inside the first character, and after it
    assert [segment[:5] for segment in found.segments(1)] == ["\\xc3", "\\x87a"]
    assert [segment[:5] for segment in found.segments(2)] == ["Ç", "a été"]
    assert str(found).splitlines()[1].startswith("\\xc3|\\x87a été")
    assert command("segment -m bytes é日 --format spaced") == of_bytes.segment("é日").spaced() + "\n"


@pytest.mark.parametrize(("ending", "pack"), [("xz", lzma.compress), ("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_packed_file(
    model: hmrnn.TextModel, command: tiny.Command, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    name = f"packed.txt.{ending}"
    Path(name).write_bytes(pack(b"abc de\n"))
    assert command.json(f"segment -m model --json --file {name}")["text"] == "abc de"
    os.truncate(name, Path(name).stat().st_size - 5)
    assert name in command.refused(f"score -m model --file {name}")


def test_a_file_that_is_a_pipe(model: hmrnn.TextModel, command: tiny.Command) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=("abc de\n",), daemon=True)
    writer.start()
    assert command.json("segment -m model --json --file pipe")["text"] == "abc de"
    writer.join()


def test_bytes_need_not_be_utf8(
    of_bytes: hmrnn.TextModel, command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, standard input or the command line; a model of characters says that they are not."""
    tiny.saved_model(Path("characters"), Vocabulary("characters", tuple("ab")))
    content = b"a\xffb"
    text = os.fsdecode(content)
    Path("odd.bin").write_bytes(content)
    for words in (["--file", "odd.bin"], [], [text]):
        tiny.stdin(monkeypatch, content)
        assert command.json("score -m bytes --json", *words)["symbols"] == 3
        tiny.stdin(monkeypatch, content)
        assert "0xff" in command.refused("segment -m characters", *words)
    bits = command.json("evaluate -m bytes --streams 1 --file odd.bin --json")["bits"]
    assert bits == pytest.approx(of_bytes.score(text, primed=False).bits)
    assert command.json("score -m bytes --json --lines", text)["text"] == "a\\xffb"
    assert of_bytes.segment("a\ud800b").ends(1)[-1] == 5  # a surrogate that stands for no byte


def test_a_text_that_names_a_file_is_that_file(model: hmrnn.TextModel, command: tiny.Command) -> None:
    Path("abc").write_text("fed cab\n")
    for name in ("segment", "score"):
        expected = command(f"{name} -m model --json --file abc")
        assert command(f"{name} -m model --json abc") == expected
        assert "abc is a file" in command.err
    Path("cab").mkdir()
    for text, told in (
        ("abcd", False),  # no such file
        ("cab", False),  # a folder cannot be read as a text
        ("cab.txt", True),  # a name that was misspelt
    ):
        assert command.json(f"segment -m model --json --unknown replace {text}")["text"] == text
        assert ("there is no file" in command.err) == told


def test_names_that_are_not_utf8_work(command: tiny.Command) -> None:
    """Of data, runs, models and what is written; resumed, fine-tuned, exported and evaluated."""
    name, run, made = (os.fsdecode(b"%s\xe9%s" % parts) for parts in ((b"a", b".txt"), (b"runs/", b""), (b"made", b"")))
    with tiny.story(Path.cwd()):
        shutil.copy("story.txt", name)
        command("data", name)
        command("train", name, "--out", run, *tiny.flags(tiny.config(epochs=1, batch_size=16, length=10))[1:])
        command("train", name, "--out", run, "--resume", "--train.epochs", 2)
        assert from_json(Path(run, "config.json").read_bytes(), Config, run).data.path == (name,)
        assert r"\xe9: a\xe9.txt" in Path(run, "report.html").read_text()
        command("train", name, "--from", run, "--out", "tuned", "--no-report", "--train.epochs", 1)
        command("export -m", run, "--out", made)
        assert r"# made\xe9" in Path(made, "README.md").read_text()
        assert command.json("evaluate --json -m", made, "--file", name)["text"] == r"a\xe9.txt"


def test_other_settings_must_be_text(command: tiny.Command) -> None:
    with tiny.story(Path.cwd()):
        assert command.refused("train story.txt --data.symbols", "\udce9").startswith("--data.symbols")
        assert os.listdir() == ["story.txt"]
