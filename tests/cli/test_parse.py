"""Dataclasses as flags: what is parsed, what is refused, and names of settings in messages."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Literal

import pytest

import tiny
from hmrnn import kind as kinds
from hmrnn.cli.arguments import ARGUMENTS
from hmrnn.cli.parse import parse, parser_of
from hmrnn.config.checks import settings_of
from hmrnn.errors import InputError
from hmrnn.utils.options import option


@dataclasses.dataclass(frozen=True)
class Part:
    """A section."""

    size: int = 3
    """How large: 5 % more."""
    fast_mode: bool = True
    """Quickly."""
    pair: tuple[float, float] = (1.0, 2.0)
    """Two numbers."""


@dataclasses.dataclass(frozen=True)
class Example:
    """What it does.

    More about it.
    """

    part: Part = dataclasses.field(default_factory=Part)
    word: str = option("", "[WORD]", positional=True)
    """A word."""
    kind: Literal["a", "b"] | None = None
    """Which."""
    files: tuple[str, ...] = option((), "FILE", "-f")
    """Some files."""
    quiet: bool = False
    """Say nothing."""


def given(*words: str) -> dict[str, object]:
    return parse(Example, words, "example")


def test_only_what_is_given_is_returned() -> None:
    assert given() == {}
    assert given("w", "--part.size", "4", "-f", "x", "y", "--quiet") == {
        "word": "w", "part.size": 4, "files": ("x", "y"), "quiet": True,
    }  # fmt: skip
    assert given("--part.no-fast-mode", "--part.pair", "1", "-2.5", "--kind", "a") == {
        "part.fast_mode": False, "part.pair": (1.0, -2.5), "kind": "a",
    }  # fmt: skip
    assert given("--part.fast-mode", "--part.size=-4") == {
        "part.fast_mode": True, "part.size": -4,
    }  # fmt: skip
    assert given("--part.pair", "-1e-3", "-.5", "-2") == {"part.pair": (-0.001, -0.5), "word": "-2"}
    assert given("--", "--part.size") == {"word": "--part.size"}
    assert given("--quiet", "two words") == given("two words", "--quiet") == {"quiet": True, "word": "two words"}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--part.size many", ("--part.size", "many")),
        ("--part.size 9223372036854775808", ("--part.size", "9223372036854775808")),
        ("--part.pair 1 x", ("--part.pair", "'x'")),
        ("--part.pair 1", ("--part.pair", "2")),
        ("--part.size", ("--part.size",)),
        ("--files", ("--files",)),
        ("--kind c", ("--kind", "'c'", "'a', 'b'")),
        ("--bogus", ("--bogus",)),
        *(
            (wrong, (wrong, f"{right}?"))
            for wrong, right in {
                "--part.sise": "--part.size", "--size": "--part.size", "--fast-modes": "--part.fast-mode",
                "--part.siz": "--part.size", "--part.fast_mode": "--part.fast-mode",  # no abbreviations
                "--no-quiet": "--quiet",
            }.items()
        ),
        ("one two", ("'two'",)),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_in_one_line(words: str, named: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        given(*words.split())
    said = str(caught.value)
    assert all(word in said for word in (*named, "example --help"))
    assert "\n" not in said


def test_docstrings_are_read_for_the_help_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them from the source takes longer than parsing."""

    def refuse(kind: type) -> dict[str, str]:
        raise AssertionError(f"the docstrings of {kind} are read")

    monkeypatch.setattr("hmrnn.config.checks._docs", refuse)
    assert given("w", "--quiet") == {"word": "w", "quiet": True}
    with pytest.raises(AssertionError, match="are read"):
        given("--help")


def test_help_holds_every_docstring_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    parser_of(Example, "example", Example(Part(size=7))).print_help()
    text = " ".join(capsys.readouterr().out.split())
    for expected in (
        "usage: example [WORD] [OPTIONS] What it does. positional",
        "part: A section. --part.size N How large: 5 % more. (default: 7)",
        "--part.fast-mode, --part.no-fast-mode Quickly.",
        "--part.pair X X Two numbers. (default: 1.0 2.0)",
        "--kind {a,b} Which.",
        "--files FILE [FILE ...] Some files.",
        "--quiet Say nothing.",
    ):
        assert expected in text, expected
    with pytest.raises(SystemExit):
        given("--help")


@pytest.mark.parametrize(
    ("words", "epochs"), [("train ptb --help", 50), ("train demo --help", 5), ("train demo -h", 5)]
)
def test_help_of_train_has_the_defaults_of_the_preset(words: str, epochs: int, command: tiny.Command) -> None:
    out = " ".join(command(words).split())
    assert re.search(rf"--train.epochs N [^()]*\(default: {epochs}\)", out)
    assert re.search(r"--model.layer-norm, --model.no-layer-norm [^()]*\(default: on\)", out)
    assert re.search(r"--regularise.shift, --regularise.no-shift [^()]*\(default: off\)", out)


def test_every_command_names_its_own_flag(tmp_path: Path, command: tiny.Command) -> None:
    for line, named in (
        ("train text", "--data.path"),
        ("train handwritten --data.lines 1", "--data.lines 1"),
        (f"train handwritten --train.device tpu --out {tmp_path}", "--train.device 'tpu'"),
        (f"train handwritten --data.lines 9 --out {tmp_path} --train.engine fast", "--train.engine 'fast'"),
        ("segment --device tpu x", "--device 'tpu'"),
        ("train handwritten --model.hidden-size", "--model.hidden-size"),
        ("train ptb --model.rnn gru --detectors.rates 0.5 0.1", "--detectors.rates"),
        ("data ptb", "PATH"),
    ):
        assert command.refused(line).startswith(named)


def test_every_option_of_a_command_has_help_and_refers_to_options_that_exist() -> None:
    for name, kind in ARGUMENTS.items():
        fields = {field.name: field for field in dataclasses.fields(kind)}
        for field in fields.values():
            assert field.metadata.get("needs", field.name) in fields, (name, field.name)


def test_an_option_of_several_kinds_has_one_help_for_all_of_them() -> None:
    """A command shows the help of one of them, whatever the model reads."""
    said: dict[tuple[str, str], set[str]] = {}
    for one in kinds.every():
        for command, options in one.options.items():
            for setting in settings_of(options):
                said.setdefault((command, setting.name), set()).add(setting.doc)
    assert ("evaluate", "boundaries") in said
    assert [name for name, docs in said.items() if len(docs) > 1] == []


def test_the_help_of_a_network_has_its_settings_alone(command: tiny.Command) -> None:
    for network, has, lacks in (
        ("hm-lstm", {"--model.flush", "--detectors.rates"}, {"--model.modules", "--model.ridge"}),
        ("hrnn", {"--model.flush", "--detectors.slope"}, {"--detectors.rates", "--model.kernel"}),
        ("cw-rnn", {"--model.modules"}, {"--model.flush", "--detectors.slope", "--regularise.zoneout"}),
    ):
        shown = command(f"train text --model.rnn {network} --help").replace(",", " ").split()
        assert has <= set(shown)
        assert not lacks & set(shown)


def test_a_kind_of_data_has_no_flags_for_what_it_lacks(command: tiny.Command) -> None:
    for flag in ("--model.rnn hrnn", "--detectors.pull-weight 1", "--data.format tags", "--data.test-fraction 0.1"):
        assert flag.split()[0] in command.refused(f"train labels a.tsv {flag}")
    for kind, lacks in (("labels", {"hrnn", "reinforce", "tags"}), ("strokes", {"hrnn", "uncertainty", "segments"})):
        choices = re.findall(r"\{([\w,.-]+)\}", command(f"train {kind} --help"))
        offered = {word for listed in choices for word in listed.split(",")}
        assert not offered & lacks
