"""hmrnn score: bits per character of a text, whole or line by line."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hmrnn
import tiny
import tiny_strokes
from hmrnn.kinds.text import commands
from hmrnn.utils import inputs
from refusals import refused

TEXT = "abc de fgh a hhg cab"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hmrnn.TextModel:
    """A model in the directory "model" of the working directory."""
    monkeypatch.chdir(tmp_path)
    return tiny.saved_model(tmp_path / "model")


def test_a_text(model: hmrnn.TextModel, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.score(TEXT)
    shown = command("score -m model", TEXT)
    total = sum(model.segment(TEXT).bits[1:])
    assert shown == f"{expected.bits:.4f} bits per character  (19 predicted, {total:.0f} bits in all)\n"
    tiny.stdin(monkeypatch, TEXT + "\n")
    assert command("score -m model") == shown
    Path("text.txt").write_text(TEXT + "\n")
    record = command.json("score -m model --file text.txt --json")
    assert record == json.loads(json.dumps(dataclasses.asdict(expected) | {"saved": expected.saved}))


def test_every_line_by_itself(model: hmrnn.TextModel, command: tiny.Command) -> None:
    lines = ["abc de", "", "a", "abc de", "cab"]
    bits = {line: model.score(line).bits for line in ("abc de", "cab")}
    shown = command("score -m model --lines", "\n".join(lines)).splitlines()
    assert shown == [f"{bits[line]:.4f}\t{line}" if line in bits else f"-\t{line}" for line in lines]
    assert command.lines("score -m model --lines --json", "\n".join(lines)) == [
        {"text": line, "symbols": len(line) - 1 if line in bits else 0, "bits": bits.get(line)} for line in lines
    ]


@pytest.mark.parametrize("how", ["--lines", "--lines --json"])
def test_a_line_is_answered_before_the_next_is_read(
    how: str, model: hmrnn.TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.BytesIO()

    def arriving(*_: Any) -> Iterator[str]:
        yield "abc de"
        assert b"abc de" in shown.getvalue()
        yield "cab"

    monkeypatch.setattr(inputs, "read_lines", arriving)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown))  # which holds back what is not flushed
    assert tiny.hmrnn(f"score -m model {how}") == 0
    assert len(shown.getvalue().splitlines()) == 2


def test_lines_are_counted_in_symbols_of_the_model(tmp_path: Path, command: tiny.Command) -> None:
    """Of bytes a single letter may be several, and without its spaces a line may be empty."""
    raw = tiny.saved_model(tmp_path / "bytes", tiny.BYTES, bytes=True)
    bare = tiny.saved_model(tmp_path / "bare", remove_spaces=True)
    assert [found and found.symbols for found in raw.score_lines(["α", "", "αβ"])] == [2, None, 4]
    assert [found and found.symbols for found in bare.score_lines(["   ", " a ", "a b c"])] == [None, None, 2]
    assert " bits per byte  (4 predicted, " in command(f"score -m {tmp_path / 'bytes'} αβ")


def test_what_cannot_be_scored(model: hmrnn.TextModel, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_strokes.save(Path("hand"), tiny_strokes.model())
    Path("text.txt").write_text(TEXT)
    tiny.stdin(monkeypatch, "")
    for words, named in (
        (["model"], "text"),
        (["model", "a"], "2"),
        (["model", "abXc", "--unknown", "refuse"], "'X' (U+0058)"),
        (["model", "--lines", "abc\nabXc", "--unknown", "refuse"], "line 2: "),
        (["model", "abc", "--file", "text.txt"], "--file"),
        (["hand", "abc"], "strokes"),
    ):
        assert named in command.refused("score -m", *words)
    with refused():
        list(model.score_lines(["abc", "", "X"], unknown="refuse"))


@pytest.mark.parametrize(("name", "what"), [("segment", "segmenting"), ("score", "scoring")])
def test_a_terminal_shows_progress_and_what_is_faster(
    model: hmrnn.TextModel, command: tiny.Command, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    monkeypatch.setattr(commands, "LONG", 1000)
    hint = {"segment": "segment --stream FILE --out FOLDER", "score": "evaluate --file FILE"}[name]
    for terminal, text in ((False, "abc de " * 160), (True, "abc"), (True, "abc de " * 160)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        command(f"{name} -m model", text)
        assert (f"\r{what} \u2501" in command.err and " 100.0%\033[K\r" in command.err) == terminal
        assert (f"hmrnn {hint}" in command.err) == (len(text) > 3 and terminal)
