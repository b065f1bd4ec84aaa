"""Text as users have it, with typographic signs or line ends from elsewhere, reaches a model as text it knows."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hmrnn
import tiny
from hmrnn import InputError, checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.cli.arguments import arguments_of
from hmrnn.config import Config
from hmrnn.config.json import from_json
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import inputs


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hmrnn.TextModel:
    """A model that knows " abcdefgh" in the directory "model" of the working directory."""
    monkeypatch.chdir(tmp_path)
    return tiny.saved_model(tmp_path / "model")


def save(directory: Path, vocabulary: Vocabulary, data: TextData) -> hmrnn.TextModel:
    """Write an untrained model with this vocabulary, and load it."""
    config = dataclasses.replace(tiny.config(), data=data)
    checkpoint.write(
        directory, Checkpoint(config, vocabulary, LanguageModel(len(vocabulary), config.model).state_dict())
    )
    loaded = hmrnn.load(directory)
    assert isinstance(loaded, hmrnn.TextModel)
    return loaded


def test_plain_of_evaluate(model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tiny.text(300)
    (tmp_path / "fancy.txt").write_text(text.replace("a", "ä").replace(" ", "\u00a0"))
    flags = ("evaluate", "-m", "model", "--streams", 1, "--json")
    assert tiny.hmrnn(*flags, "--file", "fancy.txt") == 2
    assert "; in plain ASCII all of them are known (--plain" in capsys.readouterr().err
    assert tiny.hmrnn(*flags, "--file", "fancy.txt", "--plain") == 0
    assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text).bits)
    assert tiny.hmrnn(*flags, "--plain") == 2
    assert "--plain is for --file" in capsys.readouterr().err


def test_unknown_symbols_of_streams(model: hmrnn.TextModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is read as one symbol, so that the ends index the file."""
    text = tiny.text(300)
    (tmp_path / "fancy.txt").write_text(text.replace("c", "ç").replace("d", "☃"))
    flags = ("segment", "-m", "model", "--stream", "fancy.txt", "--streams", 1, "--out", "found")
    assert tiny.hmrnn(*flags, "--unknown", "refuse") == 2
    assert "never showed: '☃'" in capsys.readouterr().err
    assert tiny.hmrnn(*flags, "--unknown", "skip") == 2
    assert "use replace or refuse" in capsys.readouterr().err
    assert tiny.hmrnn(*flags) == 0
    count = text.count("c") + text.count("d")
    assert f"note: {count} of 300 symbols of fancy.txt were read as others" in capsys.readouterr().err
    records = [json.loads(line) for line in (tmp_path / "found" / "fancy.txt.jsonl").read_text().splitlines()]
    read = text.replace("d", " ")
    assert "".join(record["text"] for record in records) == text.replace("c", "ç").replace("d", "☃")
    assert [end for record in records for end in record["ends"][0]] == model.segment(read).ends(1)


def test_evaluate_says_how_many_symbols_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "open", Vocabulary("characters", tuple(" abc"), unknown=True), TextData(unseen="replace"))
    (tmp_path / "a.txt").write_text("ab ☃" * 50)
    flags = ("evaluate", "-m", tmp_path / "open", "--file", tmp_path / "a.txt")
    assert tiny.hmrnn(*flags) == 0
    assert "as the unknown symbol  50 of 200 symbols (25.00%)" in capsys.readouterr().out
    assert tiny.hmrnn(*flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["unknown"] == 50


def test_lines_of_standard_input_are_read_as_they_arrive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_text("not this")
    end, other = os.pipe()
    with open(end, encoding="utf-8") as source, open(other, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", source)
        lines = inputs.read_lines(None, None, "characters")
        sink.write(b"\xef\xbb\xbfa b\r\n")
        assert next(lines) == "a b"  # the pipe is still open
        sink.write("\nc\rd\n\ufeffe\n".encode() + b"\xe9\n")
        assert [next(lines) for _ in range(4)] == ["", "c", "d", "\ufeffe"]  # a mark after the start is text
        with pytest.raises(InputError, match=r"^standard input is not UTF-8 text: byte 0xe9"):
            next(lines)


def test_plain_needs_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), TextData(bytes=True))
    (tmp_path / "a.txt").write_text("abc")
    assert tiny.hmrnn("evaluate", "-m", tmp_path / "bytes", "--file", tmp_path / "a.txt", "--plain") == 2
    assert "--plain: is for text, and this model reads bytes" in capsys.readouterr().err


def test_line_ends_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    r"""\r\n and \r are what \n is: on the command line, in files, on standard input and from Python."""
    model = save(tmp_path / "lines", Vocabulary("characters", tuple("\n abcdefgh")), TextData())
    text = tiny.text(120).replace(" a ", "\n")
    expected = model.segment(text)
    assert "\n" in text
    flags = ("-m", str(tmp_path / "lines"), "--json")
    for end in ("\r\n", "\r"):
        foreign = text.replace("\n", end)
        path = tmp_path / "foreign.txt"
        path.write_bytes(b"\xef\xbb\xbf" + (foreign + end).encode())
        assert_same_but_for_line_ends(model.segment(foreign), foreign, expected)
        assert model.generate(foreign, 9, seed=1) == model.generate(text, 9, seed=1)
        for given in ((foreign,), ("--file", path)):
            assert tiny.hmrnn("segment", *flags, *given) == 0
            found = hmrnn.Segmentation.from_json(capsys.readouterr().out)
            assert_same_but_for_line_ends(found, foreign, expected)
            assert tiny.hmrnn("score", *flags, *given) == 0
            assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text).bits)
            assert tiny.hmrnn("score", *flags, "--lines", *given) == 0
            records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [record["text"] for record in records] == text.split("\n")
        assert tiny.hmrnn("evaluate", *flags, "--streams", 1, "--file", path) == 0
        assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text + "\n", primed=False).bits)
        out = tmp_path / f"found {len(end)}"
        assert tiny.hmrnn("segment", *flags[:2], "--stream", path, "--streams", 1, "--out", out) == 0
        capsys.readouterr()
        records = [json.loads(line) for line in (out / "foreign.txt.jsonl").read_text().splitlines()]
        assert "".join(record["text"] for record in records) == text + "\n"
        assert [end for record in records for end in record["ends"][1]] == model.segment(
            text + "\n", primed=False
        ).ends(2)


def assert_same_but_for_line_ends(found: hmrnn.Segmentation, text: str, expected: hmrnn.Segmentation) -> None:
    """``found`` is of ``text`` itself, and what was read of it gave the numbers of ``expected``."""
    assert found.text == text
    unread = {k for k in range(len(text)) if text[k] == "\ufeff" or text[k : k + 2] == "\r\n"}
    read = [k for k in range(len(text)) if k not in unread]
    for name in ("boundaries", "operations", "norms", "bits"):
        np.testing.assert_allclose(getattr(found, name)[read], getattr(expected, name), atol=1e-4)
    assert not found.boundaries[sorted(unread)].any()


def test_bytes_are_read_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), TextData(bytes=True))
    path = tmp_path / "foreign.txt"
    path.write_bytes(b"ab\r\nc\rd\r\n")
    flags = ("segment", "-m", str(tmp_path / "bytes"))
    assert tiny.hmrnn(*flags, "--json", "--file", path) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "ab\r\nc\rd"
    with open(path, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert tiny.hmrnn(*flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "ab\r\nc\rd"
    assert tiny.hmrnn(*flags, "--stream", path, "--out", tmp_path / "found") == 0
    (record,) = (json.loads(line) for line in (tmp_path / "found" / "foreign.txt.jsonl").read_text().splitlines())
    assert record["text"] == "ab\r\nc\rd\r\n"
    assert record["ends"][0][-1] == 9


def test_the_segments_of_bytes_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), TextData(bytes=True))
    text = "Ça été, 日本 \\x41 \udcff"  # ends in a byte that is not UTF-8
    found = hmrnn.load(tmp_path / "bytes").segment(text)
    found.boundaries[:] = 0
    assert found.spaced() == found.words()[0] == found.text == "Ça été, 日本 \\x41 \\xff"
    assert str(found).splitlines()[1] == "Ça été, 日本 \\x41 \\xff"
    assert "Ça été, 日本" in found._repr_html_()
    found.boundaries[0, 0] = found.boundaries[1, 1] = 1  # inside the first character, and after it
    assert [[segment[:5] for segment in found.segments(level)] for level in (1, 2)] == [
        ["\\xc3", "\\x87a"],
        ["Ç", "a été"],
    ]
    assert str(found).splitlines()[1].startswith("\\xc3|\\x87a été")
    assert tiny.hmrnn("segment", "-m", tmp_path / "bytes", "é日", "--format", "spaced") == 0
    assert capsys.readouterr().out == hmrnn.load(tmp_path / "bytes").segment("é日").spaced() + "\n"


@pytest.mark.parametrize(("ending", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_packed_file(
    model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str], ending: str, pack: Callable[[bytes], bytes]
) -> None:
    Path(f"packed.txt{ending}").write_bytes(pack(b"abc de\n"))
    assert tiny.hmrnn("segment", "-m", "model", "--json", "--file", f"packed.txt{ending}") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "abc de"
    Path(f"damaged.txt{ending}").write_bytes(pack(b"abc de\n")[:-5])
    assert tiny.hmrnn("score", "-m", "model", "--file", f"damaged.txt{ending}") == 2
    assert f"damaged.txt{ending} is not a whole {ending} file" in capsys.readouterr().err


def test_a_file_that_is_a_pipe(model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=("abc de\n",), daemon=True)
    writer.start()
    assert tiny.hmrnn("segment", "-m", "model", "--json", "--file", "pipe") == 0
    writer.join()
    assert json.loads(capsys.readouterr().out)["text"] == "abc de"


def test_bytes_need_not_be_utf8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, standard input or the command line; a model of characters says that they are not."""
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), TextData(bytes=True))
    save(tmp_path / "characters", Vocabulary("characters", tuple("ab")), TextData())
    path = tmp_path / "odd.bin"
    path.write_bytes(b"a\xffb")
    text = os.fsdecode(b"a\xffb")
    for given in (["--file", path], [], [text]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb"), errors="surrogateescape"))
        assert tiny.hmrnn("score", "-m", tmp_path / "bytes", "--json", *given) == 0
        assert json.loads(capsys.readouterr().out)["symbols"] == 3
        assert tiny.hmrnn("evaluate", "-m", tmp_path / "bytes", "--streams", 1, "--file", path) == 0
        bits = hmrnn.load(tmp_path / "bytes").score(text, primed=False).bits
        assert f"bits per byte  {bits:.4f}" in capsys.readouterr().out
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb"), errors="surrogateescape"))
        assert tiny.hmrnn("segment", "-m", tmp_path / "characters", *given) == 2
        assert re.search("is not UTF-8.*byte 0xff", capsys.readouterr().err)
    assert tiny.hmrnn("score", "-m", tmp_path / "bytes", "--json", "--lines", text) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "a\\xffb"
    model = hmrnn.load(tmp_path / "bytes")
    assert model.segment("a\ud800b").ends(1)[-1] == 5  # a surrogate that stands for no byte


def test_a_prime_that_is_not_there_is_named_before_anything_is_loaded() -> None:
    with pytest.raises(InputError, match=r"there is no file nowhere\.npz"):
        arguments_of("generate")(prime="nowhere.npz").check()


def test_a_text_that_names_a_file_is_that_file(
    model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "abc").write_text("fed cab\n")
    for command in ("segment", "score"):
        assert tiny.hmrnn(command, "-m", "model", "--json", "--file", "abc") == 0
        expected = capsys.readouterr().out
        assert tiny.hmrnn(command, "-m", "model", "--json", "abc") == 0
        shown = capsys.readouterr()
        assert shown.out == expected
        assert shown.err == "hmrnn: note: abc is a file, which is read; to read these letters, use standard input\n"
    assert tiny.hmrnn("segment", "-m", "model", "--json", "abcd") == 0  # no such file
    assert capsys.readouterr().err == ""
    (tmp_path / "cab").mkdir()
    assert tiny.hmrnn("segment", "-m", "model", "--json", "cab") == 0  # a folder cannot be read as a text
    assert json.loads(capsys.readouterr().out)["text"] == "cab"
    assert tiny.hmrnn("segment", "-m", "model", "--json", "cab.txt") == 0  # a name that was misspelt
    assert "hmrnn: note: there is no file cab.txt, so these letters are read\n" in capsys.readouterr().err


def test_names_that_are_not_utf8_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of data, runs, models and what is written; resumed, fine-tuned, exported and evaluated."""
    name, run, made = (os.fsdecode(b"%s\xe9%s" % parts) for parts in ((b"a", b".txt"), (b"runs/", b""), (b"made", b"")))
    flags = tiny.flags(tiny.config(epochs=1, batch_size=16, length=10))[1:]  # with a report
    with tiny.story(tmp_path):
        shutil.copy("story.txt", name)
        assert tiny.hmrnn("data", name) == 0
        assert tiny.hmrnn("train", name, "--out", run, *flags) == 0
        assert tiny.hmrnn("train", name, "--out", run, "--resume", "--train.epochs", 2) == 0
        assert from_json(Path(run, "config.json").read_bytes(), Config, run).data.path == (name,)
        report = Path(run, "report.html").read_text()
        assert r"\xe9: a\xe9.txt" in report
        assert tiny.hmrnn("train", name, "--from", run, "--out", "tuned", "--no-report", "--train.epochs", 1) == 0
        assert tiny.hmrnn("export", "-m", run, "--out", made) == 0
        assert Path(made, "README.md").read_text().startswith(r"# made\xe9")
        assert tiny.hmrnn("evaluate", "-m", made, "--file", name) == 0
        capsys.readouterr()
        assert tiny.hmrnn("evaluate", "-m", run, "--file", name, "--json") == 0
        assert json.loads(capsys.readouterr().out)["text"] == r"a\xe9.txt"


def test_other_settings_must_be_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny.story(tmp_path):
        assert tiny.hmrnn("train", "story.txt", "--data.symbols", "\udce9") == 2
        assert "hmrnn: --data.symbols" in capsys.readouterr().err
        assert os.listdir() == ["story.txt"]
