"""Progress of commands: bars on a terminal, lines elsewhere, and messages that do not run into them."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from pathlib import Path

import pytest

import tiny
from hmrnn import kind
from hmrnn.cli import display, progress, terminal
from hmrnn.kinds.text.commands import TextCommands, words_of
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory


def test_without_a_terminal_a_long_reading_prints_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first within ten seconds, then one a minute; none for what takes less time."""
    seconds = range(0, 84, 4)
    clock = iter(seconds)
    monkeypatch.setattr(display, "monotonic", lambda: next(clock))
    show = display.show_progress("reading")
    for done in seconds:
        show(done, 80)
    assert capsys.readouterr().err == "reading  10.0%  1 min 12 s left\nreading  85.0%  12 s left\n"


@pytest.mark.parametrize("model", ["handwriting-small", "english-small"])
def test_without_a_terminal_writing_says_how_long_it_takes(
    model: str, tmp_path: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr(display, "monotonic", lambda: next(clock))
    out = f"--out {tmp_path / 'line.svg'}" if model == "handwriting-small" else ""
    command(f"generate -m {model} --samples 2 --length 20 --seed 1 {out}")
    assert re.match(r"writing +\d+\.\d%  \d+ s left\n", command.err)


def test_an_error_does_not_run_into_the_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for write in (terminal.warn, terminal.say):
        display.show_progress("reading")(1, 2)
        write("oops")
        write("twice")
        shown = capsys.readouterr()
        assert "50.0%\033[K\r\033[K" in shown.err
        assert (shown.err.partition("50.0%")[2] + shown.out) == "\033[K\r\033[Koops\ntwice\n"


@pytest.mark.parametrize("watched", [False, True])
def test_training_says_how_far_it_is(
    watched: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, 0.5)
    monkeypatch.setattr(display, "monotonic", lambda: next(clock))
    for stream in (sys.stderr, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: watched)
    trainer = tiny.trainer(tiny.config(epochs=3, log_every=5))
    run = RunDirectory(tmp_path)
    with run.open():
        progress.follow(train(trainer, run), trainer, run, quiet=False)
    out, err = capsys.readouterr()
    assert len(re.findall(r"^epoch \d\.\d\d  step \d+ of 30  \d", out, re.MULTILINE)) == (0 if watched else 6)
    assert len(re.findall(r"^epoch .* validation", out, re.MULTILINE)) == 3
    assert len(re.findall(r"\d s left", err)) == (25 if watched else 1)
    assert ("bits/char" in err) == watched
    assert max(map(len, err.split("\r"))) < 90


@pytest.mark.parametrize("sizes", [(4,), tuple(range(3, 15))])
def test_many_layers_are_summed_up(sizes: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer, run = tiny.trainer(tiny.config(epochs=1, num_layers=12, hidden_size=sizes)), RunDirectory(tmp_path)
    with run.open():
        progress.follow(train(trainer, run), trainer, run, quiet=False)
    lines = capsys.readouterr().out.splitlines()
    assert ("4 (12 of them)" if len(sizes) == 1 else "3, 4, ..., 14 (12 in all)") in lines[1]
    assert any("z1=" in line and "z11=" in line and "z9=" not in line for line in lines)


def test_the_command_to_try_suits_the_run() -> None:
    config = tiny.config()
    lines = dataclasses.replace(config, data=TextData(format="lines"))
    told = dataclasses.replace(lines, model=dataclasses.replace(config.model, classes=("New Zealand", "Norway")))
    numbers = dataclasses.replace(lines, model=dataclasses.replace(config.model, condition_numbers=2))
    text = "on über die Straße läuft die Katze und schläft"  # its first word is cut off
    vocabulary = Vocabulary("characters", tuple(sorted(set(text))))
    corpus = Corpus("katze", vocabulary, *[vocabulary.encode(text)] * 3, {})
    next_command = TextCommands(kind.find("text"), lambda what: None).next
    commands = [next_command(one, Path("runs/a"), corpus) for one in (config, lines, told, numbers)]
    generate = "generate -m runs/a --samples 5"
    assert commands[0] == "segment -m runs/a 'über die Straße läuft die Katze und'"
    assert commands[1:] == [generate, f"{generate} --condition 'New Zealand'", f"{generate} --condition '0 0'"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Straße" * 9, f"{'Straße' * 6}Stra"),
        ("  \n ", "TEXT"),
        ("a -m \x1b[31mb\x00c d", "c d"),
        ("| \"'\"'+'\"'\"' 12 34", "TEXT"),
        (
            "def f(x):\n    return '| ' + \"'\" + x  # adds a bar, and the sign before it\n",
            "adds a bar, and the sign before it",
        ),
        ("1 2 हिन्दी में लिखा है 3", "हिन्दी में लिखा है"),
        ("$(reboot) `ls` a; b", "ls"),
    ],
)
def test_words_of_a_text_need_no_quotes(text: str, shown: str) -> None:
    vocabulary = Vocabulary("characters", tuple(sorted(set(text))))
    assert words_of(Corpus("odd", vocabulary, *[vocabulary.encode(text)] * 3, {})) == shown
