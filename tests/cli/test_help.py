"""What the commands say of themselves: help, examples, version."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import hmrnn
import tiny
from hmrnn.cli import arguments as flags
from hmrnn.cli import doctor, parse
from hmrnn.cli import main as cli
from hmrnn.config.json import to_json
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.ops.native import library

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
right = ([], ["--help"], ["--version"], ["train", "--help"], ["plot", "--help"], ["shell", "man"])
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
    assert statuses == ["status 0"] * 6 + ["status 2"] * 18
    assert len(done.stderr.splitlines()) == 18


@pytest.mark.parametrize("line", ["", "-h", "--help", "help"])
def test_help(line: str, command: tiny.Command) -> None:
    out = command(line)
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert set(COMMANDS) >= {"demo", "train", "evaluate", "segment", "generate", "plot", "data"}


def test_version(command: tiny.Command) -> None:
    for flag in ("--version", "-V"):
        assert command(flag) == f"hmrnn {hmrnn.__version__}\n"


def completed(shell: str, tmp_path: Path, script: str, *words: str) -> list[str]:
    """What a shell offers for the last of ``words``."""
    (tmp_path / "script").write_text(script)
    code = {
        "bash": f"COMP_WORDS=({shlex.join(['hmrnn', *words])}); COMP_CWORD={len(words)}; _hmrnn; "
        "printf '%s\\n' ${COMPREPLY[@]}",
        "fish": f"complete -C {shlex.quote(' '.join(['hmrnn', *words]))}",
    }[shell]
    done = subprocess.run(
        [shell, "-c", f"source ./script; {code}"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert not done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_commands_flags_values_and_presets(shell: str, tmp_path: Path, command: tiny.Command) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    complete = partial(completed, shell, tmp_path, command(f"shell {shell}"))
    assert {"segment", "score", "shell"} == set(complete("s"))
    assert {"cpu", "cuda"} == set(complete("bench", "--device", ""))
    assert {"adam", "muon"} == set(complete("train", "text", "--train.optimizer", ""))
    assert "--train.optimizer" in complete("train", "text", "--train.o")
    assert {"text", "text8"} <= set(complete("train", "te"))
    assert "--model.rnn" not in complete("evaluate", "--m")


def test_the_script_for_zsh_is_that_for_bash(command: tiny.Command) -> None:
    assert command("shell zsh").endswith(command("shell bash"))
    assert "bashcompinit" in command("shell zsh")


def test_the_man_page_has_every_command_and_every_status(command: tiny.Command) -> None:
    page = command("shell man")
    assert [line.split()[-1] for line in page.splitlines() if line.startswith(".SS ")] == list(COMMANDS)
    assert all(f"\n.B {status}\n" in page for status in ("0", "1", "2", "130, 143"))
    assert not any(line.startswith("'") for line in page.splitlines())
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-ww", "-man", "-Tutf8"], input=page, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""


def test_doctor_says_what_runs_and_what_is_missing(command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(line.split(maxsplit=1) for line in command("doctor").splitlines())
    assert found["hmrnn"].startswith(hmrnn.__version__)
    assert {"engine", "BLAS", "threads", "GPU", "[page]", "[demo]", "[hub]", "[tokenizers]"} < set(found)
    assert found["engine"].startswith("native")
    monkeypatch.setattr(library, "why_not", lambda: "no compiler")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    without = doctor.facts()
    assert without["engine"].startswith("reference")
    assert "no compiler" in without["engine"]
    for extra in ("page", "hub", "tokenizers"):
        assert f"hmrnn[{extra}]" in without[f"[{extra}]"]
