"""hmrnn score: bits per character of a text, whole or line by line."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hmrnn
import tiny
import tiny_strokes
from hmrnn import checkpoint
from hmrnn.checkpoint import Checkpoint
from hmrnn.cli import progress
from hmrnn.errors import InputError
from hmrnn.kinds.text import commands
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils import inputs

TEXT = "abc de fgh a hhg cab"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hmrnn.TextModel:
    """A model in the directory "model" of the working directory."""
    monkeypatch.chdir(tmp_path)
    return tiny.saved_model(tmp_path / "model")


def test_a_text(
    model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = model.score(TEXT)
    assert tiny.hmrnn("score", "-m", "model", TEXT) == 0
    shown = capsys.readouterr().out
    total = sum(model.segment(TEXT).bits[1:])
    assert shown == f"{expected.bits:.4f} bits per character  (19 predicted, {total:.0f} bits in all)\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT + "\n"))
    assert tiny.hmrnn("score", "-m", "model") == 0
    assert capsys.readouterr().out == shown
    (tmp_path / "text.txt").write_text(TEXT + "\n")
    assert tiny.hmrnn("score", "-m", "model", "--file", "text.txt", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {
        **json.loads(json.dumps(dataclasses.asdict(expected))),
        "saved": expected.saved,
    }


def test_every_line_by_itself(model: hmrnn.TextModel, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["abc de", "", "a", "abc de", "cab"]
    bits = {line: model.score(line).bits for line in ("abc de", "cab")}
    assert tiny.hmrnn("score", "-m", "model", "--lines", "\n".join(lines)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == [f"{bits[line]:.4f}\t{line}" if line in bits else f"-\t{line}" for line in lines]
    assert tiny.hmrnn("score", "-m", "model", "--lines", "--json", "\n".join(lines)) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records == [
        {"text": line, "symbols": len(line) - 1 if line in bits else 0, "bits": bits.get(line)} for line in lines
    ]


@pytest.mark.parametrize("given", [["--lines"], ["--lines", "--json"]])
def test_a_line_is_answered_before_the_next_is_read(
    given: list[str], model: hmrnn.TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.BytesIO()

    def arriving(*_: Any) -> Iterator[str]:
        yield "abc de"
        assert b"abc de" in shown.getvalue()
        yield "cab"

    monkeypatch.setattr(inputs, "read_lines", arriving)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown))  # which holds back what is not flushed
    assert tiny.hmrnn("score", "-m", "model", *given) == 0
    assert len(shown.getvalue().splitlines()) == 2


def test_lines_are_counted_in_symbols_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of bytes a single letter may be several, and without its spaces a line may be empty."""
    config = tiny.config()
    for name, vocabulary, data in (
        ("bytes", Vocabulary("bytes", tuple(range(256))), TextData(bytes=True)),
        ("bare", tiny.VOCABULARY, TextData(remove_spaces=True)),
    ):
        network = LanguageModel(len(vocabulary), config.model)
        saved = Checkpoint(dataclasses.replace(config, data=data), vocabulary, network.state_dict())
        checkpoint.write(tmp_path / name, saved)
    raw, bare = hmrnn.load(tmp_path / "bytes"), hmrnn.load(tmp_path / "bare")
    assert [found and found.symbols for found in raw.score_lines(["α", "", "αβ"])] == [2, None, 4]
    assert [found and found.symbols for found in bare.score_lines(["   ", " a ", "a b c"])] == [None, None, 2]
    assert tiny.hmrnn("score", "-m", tmp_path / "bytes", "αβ") == 0
    assert " bits per byte  (4 predicted, " in capsys.readouterr().out


def test_what_cannot_be_scored(
    model: hmrnn.TextModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_strokes.save(tmp_path / "hand", tiny_strokes.model())
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for arguments, message in (
        (("-m", "model"), "there is nothing to score: the text is empty"),
        (("-m", "model", "a"), "must hold at least 2 symbols; got 1"),
        (
            ("-m", "model", "abXc", "--unknown", "refuse"),
            "1 symbol that training never showed: 'X' (U+0058) at position 2",
        ),
        (
            ("-m", "model", "--lines", "abc\nabXc", "--unknown", "refuse"),
            "line 2: the text holds 1 symbol that training",
        ),
        (("-m", "model", "abc", "--file", __file__), "a text cannot be combined with --file"),
        (("-m", "hand", "abc"), "a text is for text, and this is strokes"),
    ):
        assert tiny.hmrnn("score", *arguments) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    with pytest.raises(InputError, match=r"^line 3: "):
        list(model.score_lines(["abc", "", "X"], unknown="refuse"))


@pytest.mark.parametrize(("command", "what"), [("segment", "segmenting"), ("score", "scoring")])
def test_a_terminal_shows_progress_and_what_is_faster(
    model: hmrnn.TextModel,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    what: str,
) -> None:
    monkeypatch.setattr(commands, "LONG", 1000)
    hint = {"segment": "segment --stream FILE --out FOLDER", "score": "evaluate --file FILE"}[command]
    for terminal, text in ((False, "abc de " * 160), (True, "abc"), (True, "abc de " * 160)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert tiny.hmrnn(command, "-m", "model", text) == 0
        err = capsys.readouterr().err
        assert (f"\r{what} \u2501" in err and " 100.0%\033[K\r" in err) == terminal
        assert (f"1,120 symbols, read one after the other; hmrnn {hint} reads parts" in err) == (
            len(text) > 3 and terminal
        )


class Event(dict[str, Any]):
    """One that can be watched."""


def test_a_process_that_shows_nothing_keeps_nothing() -> None:
    """Of a run of a million updates there are as many events."""
    seen: list[weakref.ref[Event]] = []

    def events() -> Iterator[Event]:
        for step in range(10):
            assert sum(one() is not None for one in seen) <= 1
            event = Event(event="step", step=step)
            seen.append(weakref.ref(event))
            yield event
            del event

    nothing: Any = None
    assert progress.follow(events(), nothing, nothing, quiet=True)["step"] == 9
