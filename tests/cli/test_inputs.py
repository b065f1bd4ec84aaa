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
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import hmrnn
import tiny
from hmrnn import InputError, checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.cli import arguments as flags
from hmrnn.config import DataConfig
from hmrnn.data import Vocabulary
from hmrnn.nn.models import LanguageModel


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hmrnn.TextModel:
    """A model that knows " abcdefgh" in the directory "model" of the working directory."""
    monkeypatch.chdir(tmp_path)
    return tiny.saved_model(tmp_path / "model")


def save(directory: Path, vocabulary: Vocabulary, data: DataConfig) -> hmrnn.TextModel:
    """Write an untrained model with this vocabulary, and load it."""
    config = dataclasses.replace(tiny.config(), data=data)
    checkpoint.write(
        directory, Checkpoint(config, vocabulary, LanguageModel(len(vocabulary), config.model).state_dict())
    )
    loaded = hmrnn.load(directory)
    assert isinstance(loaded, hmrnn.TextModel)
    return loaded


def test_plain_of_generate(model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("-m", "model", "--length", 20, "--seed", 1)
    assert tiny.hmrnn("generate", *flags, "äbç dé ") == 2
    assert "; in plain ASCII all of them are known: --plain" in capsys.readouterr().err
    assert tiny.hmrnn("generate", *flags, "--plain", "äbç dé ") == 0
    assert capsys.readouterr().out == "abc de " + model.generate("abc de ", 20, temperature=0.8, seed=1) + "\n"


def test_plain_of_evaluate(model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tiny.text(300)
    (tmp_path / "fancy.txt").write_text(text.replace("a", "ä").replace(" ", "\u00a0"))
    flags = ("evaluate", "-m", "model", "--streams", 1, "--json")
    assert tiny.hmrnn(*flags, "--file", "fancy.txt") == 2
    assert "; in plain ASCII all of them are known: --plain" in capsys.readouterr().err
    assert tiny.hmrnn(*flags, "--file", "fancy.txt", "--plain") == 0
    assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text).bits)
    assert tiny.hmrnn(*flags, "--plain") == 2
    assert "--plain is for --file" in capsys.readouterr().err


def test_plain_of_streams(model: hmrnn.TextModel, tmp_path: Path) -> None:
    text = tiny.text(300)
    (tmp_path / "fancy.txt").write_text(text.replace("c", "ç"))
    flags = ("segment", "-m", "model", "--stream", "fancy.txt", "--streams", 1, "--out", "found")
    assert tiny.hmrnn(*flags) == 2
    assert tiny.hmrnn(*flags[:-1], "plain", "--plain") == 0
    records = [json.loads(line) for line in (tmp_path / "plain" / "fancy.txt.jsonl").read_text().splitlines()]
    assert "".join(record["text"] for record in records) == text
    assert [end for record in records for end in record["ends"][0]] == model.segment(text).ends(1)


def test_plain_needs_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), DataConfig(bytes=True))
    (tmp_path / "a.txt").write_text("abc")
    assert tiny.hmrnn("evaluate", "-m", tmp_path / "bytes", "--file", tmp_path / "a.txt", "--plain") == 2
    assert "--plain is for text, and this model reads bytes" in capsys.readouterr().err


def test_line_ends_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    r"""\r\n and \r are what \n is: on the command line, in files, on standard input and from Python."""
    model = save(tmp_path / "lines", Vocabulary("characters", tuple("\n abcdefgh")), DataConfig())
    text = tiny.text(120).replace(" a ", "\n")
    expected = model.segment(text)
    assert "\n" in text
    flags = ("-m", str(tmp_path / "lines"), "--json")
    for end in ("\r\n", "\r"):
        foreign = text.replace("\n", end)
        path = tmp_path / "foreign.txt"
        path.write_bytes(b"\xef\xbb\xbf" + (foreign + end).encode())
        assert model.segment(foreign).to_dict() == expected.to_dict()
        assert model.generate(foreign, 9, seed=1) == model.generate(text, 9, seed=1)
        for given in ((foreign,), ("--file", path)):
            assert tiny.hmrnn("segment", *flags, *given) == 0
            assert json.loads(capsys.readouterr().out) == expected.to_dict()
            assert tiny.hmrnn("score", *flags, *given) == 0
            assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text).bits)
            assert tiny.hmrnn("score", *flags, "--lines", *given) == 0
            records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [record["text"].removeprefix("\ufeff") for record in records] == text.split("\n")
        assert tiny.hmrnn("evaluate", *flags, "--streams", 1, "--file", path) == 0
        assert json.loads(capsys.readouterr().out)["bits"] == pytest.approx(model.score(text + "\n").bits)
        out = tmp_path / f"found {len(end)}"
        assert tiny.hmrnn("segment", *flags[:2], "--stream", path, "--streams", 1, "--out", out) == 0
        capsys.readouterr()
        found = [json.loads(line) for line in (out / "foreign.txt.jsonl").read_text().splitlines()]
        assert "".join(record["text"] for record in found) == text + "\n"
        assert [end for record in found for end in record["ends"][1]] == model.segment(text + "\n").ends(2)


def test_bytes_are_read_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), DataConfig(bytes=True))
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
    save(tmp_path / "bytes", Vocabulary("bytes", tuple(range(256))), DataConfig(bytes=True))
    save(tmp_path / "characters", Vocabulary("characters", tuple("ab")), DataConfig())
    path = tmp_path / "odd.bin"
    path.write_bytes(b"a\xffb")
    text = os.fsdecode(b"a\xffb")
    for given in (["--file", path], [], [text]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb"), errors="surrogateescape"))
        assert tiny.hmrnn("score", "-m", tmp_path / "bytes", "--json", *given) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["symbols"] == 2
        assert tiny.hmrnn("evaluate", "-m", tmp_path / "bytes", "--streams", 1, "--file", path) == 0
        assert f"bits per byte  {found['bits']:.4f}" in capsys.readouterr().out
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb"), errors="surrogateescape"))
        assert tiny.hmrnn("segment", "-m", tmp_path / "characters", *given) == 2
        assert re.search("is not UTF-8.*byte 0xff", capsys.readouterr().err)
    assert tiny.hmrnn("score", "-m", tmp_path / "bytes", "--json", "--lines", text) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "a\\xffb"
    model = hmrnn.load(tmp_path / "bytes")
    assert model.segment("a\ud800b").ends(1)[-1] == 5  # a surrogate that stands for no byte


def test_a_home_is_looked_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tiny.saved_model(tmp_path / "model")
    (tmp_path / "a.txt").write_text("abc abc")
    assert tiny.hmrnn("segment", "-m", "~/model", "--file", "~/a.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "abc abc"


def test_a_prime_that_is_not_there_is_named_before_anything_is_loaded() -> None:
    with pytest.raises(InputError, match=r"there is no file nowhere\.npz"):
        flags.GenerateArguments(prime="nowhere.npz").check()
