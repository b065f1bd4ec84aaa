"""What the commands say of themselves: help, examples, version."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hmrnn
import tiny
from hmrnn.cli import arguments as flags
from hmrnn.cli import main as cli
from hmrnn.cli import parse
from hmrnn.config.json import to_json
from hmrnn.kinds.text.presets import PRESETS

COMMANDS = tuple(flags.ARGUMENTS)


@pytest.mark.parametrize("named", COMMANDS)
def test_the_examples_of_a_command_are_right(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tiny.Command
) -> None:
    """They are shown by --help, and they parse; what they do is tested elsewhere."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("It was the best of times.")
    PRESETS["text"].save("run.toml")
    Path("runs/book").mkdir(parents=True)
    Path("runs/book/config.json").write_bytes(to_json(PRESETS["text"]))
    examples = parse.examples_of(flags.ARGUMENTS[named])
    assert examples
    for line in examples:
        _, name, *words = shlex.split(line, comments=True)
        assert name == named
        cli.parsed(named, words)
    shown = command(f"{named} --help").splitlines()
    assert all(f"  {line}" in shown for line in examples)


def test_help_and_complaints_need_no_torch(tmp_path: Path) -> None:
    """They answer at once: what takes seconds to import is imported when a command runs."""
    code = """
import sys
import threading
from hmrnn.cli.main import main
right = ([], ["--help"], ["--version"], ["train", "--help"], ["plot", "--help"])
wrong = ("nonsense", "train no", "train ptb --bogus", "train ptb --train.epochs 0", "train text --data.path no",
         "segment -m no abc", "segment two words", "score --file no", "generate -m no",
         "evaluate -m english-small --plain", "evaluate -m english-small --file no", "segment --stream no --out found",
         "plot abc --file no", "explore -m no", "explore --port 99999", "export -m no --out new", "data no",
         "bench --threads 0")
for arguments in (*right, *map(str.split, wrong)):
    try:
        main(arguments)
    except SystemExit as stop:
        print("status", stop.code)
print([name for name in ("torch", "matplotlib", "numpy", "safetensors") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=tiny.environment(tmp_path), check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert statuses == ["status 0"] * 5 + ["status 2"] * 18
    assert len(done.stderr.splitlines()) == 18


@pytest.mark.parametrize("line", ["", "-h", "--help", "help"])
def test_help(line: str, command: tiny.Command) -> None:
    out = command(line)
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert set(COMMANDS) >= {"demo", "train", "evaluate", "segment", "generate", "plot", "data"}


def test_version(command: tiny.Command) -> None:
    for flag in ("--version", "-V"):
        assert command(flag) == f"hmrnn {hmrnn.__version__}\n"
