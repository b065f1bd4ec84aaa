"""No escape code of a text, a file name or a model reaches the terminal."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from pathlib import Path

import pytest

import hmrnn
import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.cli.terminal import escaped
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import inputs

NASTY = "\x1b]0;owned\x07\x9b31m\u202ea\nb"
SHOWN = "\\u001b]0;owned\\u0007\\u009b31m\\u202ea\\u000ab"


def save_model(directory: Path, symbols: str) -> None:
    """Write an untrained model with these symbols."""
    config = dataclasses.replace(tiny.config(), data=TextData())
    vocabulary = Vocabulary("characters", tuple(sorted(symbols)))
    weights = LanguageModel(len(vocabulary), config.model).state_dict()
    checkpoint.write(directory, Checkpoint(config, vocabulary, weights))


def unsafe(text: str) -> list[str]:
    """Characters that are not printable, apart from those of our own colours and progress bars."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)
    return [c for c in text if c != "\n" and c != "\t" and not c.isprintable()]


def test_escaped() -> None:
    assert escaped(NASTY) == SHOWN
    assert escaped("a\nb\tc", keep="\n\t") == "a\nb\tc"
    assert escaped("\udcff\u2028") == "\\udcff\\u2028"
    ordinary = "caf\u00e9 \u4f60\u597d \U0001f600 \u00a0x"
    assert escaped(ordinary) == ordinary
    assert json.loads(f'"{escaped(NASTY)}"') == NASTY


@pytest.mark.parametrize(
    "words",
    [
        ("segment", "-m", NASTY, "abc"),
        ("segment", "--file", NASTY),
        ("train", NASTY),
        (NASTY,),
        ("demo", NASTY),
        ("demo", f"--{NASTY}"),
        ("train", "demo", "--train.epochs", NASTY),
    ],
)
def test_errors_are_one_safe_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.hmrnn(*words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not unsafe(err)
    assert "owned" in err


def test_text_of_a_model_is_escaped_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    save_model(Path("model"), "ab\n\x1b\x9b")
    text = "a\x1bb\x9ba"
    commands = {
        "score": ("score", "-m", "model", "--lines", text),
        "generate": ("generate", "-m", "model", text, "--length", 60, "--seed", 1),
        "segment": ("segment", "-m", "model", text),
    }
    for words in commands.values():
        assert tiny.hmrnn(*words) == 0
        assert not unsafe(capsys.readouterr().out)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)  # a pipe gets the text itself
    assert tiny.hmrnn(*commands["generate"]) == 0
    made = hmrnn.load("model").generate(text, 60, temperature=0.8, seed=1)
    assert capsys.readouterr().out == f"{text}{made}\n"
    assert unsafe(made)


def test_names_of_files_and_lines_are_escaped_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("HMRNN_CACHE", "cache")
    tiny_strokes.save(Path("hand"), tiny_strokes.model())
    name = f"{NASTY.replace('/', '')}.json"
    lines = [*tiny_strokes.strokes(2), tiny_strokes.strokes(1)[0][:1]]
    save_strokes(Strokes.of(lines, ["x", "y", NASTY]), name)
    assert tiny.hmrnn("evaluate", "-m", "hand", "--file", name) == 0
    out, err = capsys.readouterr()
    assert "owned" in out
    assert "owned" in err
    assert not unsafe(out + err)
    story = f"story{NASTY}.txt"
    Path(story).write_text(tiny.text(900))
    assert tiny.hmrnn("data", story) == 0
    assert tiny.hmrnn("train", story, "--out", "run", *tiny.flags(tiny.config(epochs=1, length=10))) == 0
    out = capsys.readouterr().out
    assert "owned" in out
    assert not unsafe(out)


@pytest.mark.parametrize("words", [("segment", "--file", "/dev/zero"), ("score",), ("plot", "--out", "none.png")])
def test_an_endless_text_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inputs, "LARGEST", 3 << 20)
    tiny.saved_model(tmp_path / "model")
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        assert tiny.hmrnn(*words, "-m", tmp_path / "model") == 2
    err = capsys.readouterr().err
    assert "is larger than 3 MiB; hmrnn segment --stream and hmrnn evaluate --file read files of any size" in err
    assert err.count("\n") == 1


def test_the_largest_text_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tiny.saved_model(tmp_path / "model")
    monkeypatch.setattr(inputs, "LARGEST", 6)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc de")))
    assert tiny.hmrnn("segment", "-m", tmp_path / "model", "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "abc de"
