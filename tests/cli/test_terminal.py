"""No escape code of a text, a file name or a model reaches the terminal."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import tiny
import tiny_strokes
from hmrnn.cli.terminal import escaped
from hmrnn.kinds.strokes.files import save_strokes
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import inputs

NASTY = "\x1b]0;owned\x07\x9b31m\u202ea\nb"
SHOWN = "\\u001b]0;owned\\u0007\\u009b31m\\u202ea\\u000ab"


@pytest.fixture(autouse=True)
def _inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.parametrize("line", ["segment abc -m", "segment --file", "train", "", "demo", "train demo --train.epochs"])
def test_errors_are_one_safe_line(line: str, command: tiny.Command) -> None:
    for said in (command.refused(line, NASTY), command.refused("demo", f"--{NASTY}")):
        assert not unsafe(said)
        assert "owned" in said


def test_text_of_a_model_is_escaped_on_a_terminal(command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    model = tiny.saved_model(Path("model"), Vocabulary("characters", tuple("\n\x1bab\x9b")))
    text = "a\x1bb\x9ba"
    lines = ("score -m model --lines", "segment -m model", "generate -m model --length 60 --seed 1")
    for line in lines:
        assert not unsafe(command(line, text))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)  # a pipe gets the text itself
    made = model.generate(text, 60, temperature=0.8, seed=1)
    assert command(lines[-1], text) == f"{text}{made}\n"
    assert unsafe(made)


def test_names_of_files_and_lines_are_escaped_on_a_terminal(
    command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("HMRNN_CACHE", "cache")
    tiny_strokes.save(Path("hand"), tiny_strokes.model())
    lines = [*tiny_strokes.strokes(2), tiny_strokes.strokes(1)[0][:1]]
    save_strokes(Strokes.of(lines, ["x", "y", NASTY]), f"{NASTY}.json")
    Path(f"story{NASTY}.txt").write_text(tiny.text(900))
    command("evaluate -m hand --file", f"{NASTY}.json")
    shown = [command.out, command.err, command("data", f"story{NASTY}.txt")]
    flags = tiny.flags(tiny.config(epochs=1, length=10, batch_size=16))
    shown.append(command("train", f"story{NASTY}.txt", "--out", "run", *flags))
    for text in shown:
        assert "owned" in text
        assert not unsafe(text)


@pytest.mark.parametrize("line", ["segment --file /dev/zero", "score", "plot --out none.png"])
def test_an_endless_text_is_refused(line: str, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LARGEST", 3 << 20)
    tiny.saved_model(Path("model"))
    with open("/dev/zero", encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        assert "3,145,728" in command.refused(f"{line} -m model")


def test_the_largest_text_is_read(command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.saved_model(Path("model"))
    monkeypatch.setattr(inputs, "LARGEST", 6)
    tiny.stdin(monkeypatch, b"abc de")
    assert command.json("segment -m model --json")["text"] == "abc de"
