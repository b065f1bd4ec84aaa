"""Whatever is wrong: one line that says what was expected, exit status 2, and nothing created or changed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from complaints import BEST, FLAGS, complaint, tree

import fuzz
import tiny
from hmrnn import checkpoint
from hmrnn.training.rundir import RunDirectory

NAMELESS = [
    "train story.txt",
    "train --train.epochs 3",
    "train other.txt --out runs/story --resume",
    "evaluate",
    "train",
    "data iamondb",
]
"""Where nothing of the command itself is wrong."""
REFUSED = [
    "train nowhere.txt",
    "train text --data.path nowhere",
    "train ptb",
    "train empty.txt",
    "train short.txt",
    "train brief.txt --train.batch-size 64",
    "train short.txt --train.batch-size 1 --train.length 3",
    "data short.txt",
    "train series.csv",
    "train texts.tar.gz",
    "data iamondb --path iam --split official",
    "data iamondb",
    "train binary.txt",
    "train latin1.txt",
    "train folder",
    "frobnicate",
    "train",
    "train --train.epochs 3",
    "train story.txt --seed 3",
    "train ptbb",
    "train lines story.txt",
    "train enwki8",
    "train stroy.txt",
    "report -m runs/story",
    "gen -m runs/story",
    "evalute -m runs/story",
    "train story.txt --train.speed 3",
    "train story.txt --model.hiden-size 3",
    "train story.txt again",
    "demo --slow",
    "train story.txt --model.num-layers 0",
    "train story.txt --train.learning-rate -1",
    "train story.txt --model.hidden-size 8 9",
    "train story.txt --model.hidden-size",
    "train story.txt --detectors.estimator never",
    "train story.txt --train.epochs many",
    "train story.txt --train.epochs",
    "train story.txt --data.valid-fraction 0.99",
    "train story.txt --train.seed -4",
    "train brief.txt --train.length 3 --train.engine steam",
    "train brief.txt --train.device abacus",
    "train story.txt --train.accumulate 5",
    "train story.txt",
    "train story.txt --out folder",
    "train story.txt --out folder --overwrite",
    "train story.txt --out empty.txt",
    "train story.txt --out runs/new --resume",
    "train story.txt --out runs/fresh --resume",
    "train story.txt --resume --overwrite",
    "train story.txt --resume --model.num-layers 2 --model.hidden-size 8",
    "train story.txt --resume --train.learning-rate 1",
    "train other.txt --out runs/story --resume",
    "train words story.txt --out runs/story --resume",
    "train demo --out runs/story --resume",
    "demo --out runs/story",
    "demo --fresh --out runs/story",
    "train story.txt --data.path story.txt",
    "train text story.txt --data.path story.txt",
    "segment -m runs/story abc --width -5",
    "bench --repeats 0",
    "bench --threads -1",
    "bench --threads 1025",
    "bench --threads 9223372036854775808",
    "train story.txt --train.threads 2147483647",
    "bench --modes",
    "demo --out folder",
    "evaluate",
    "segment -m runs/nowhere abc",
    "segment -m english-smal abc",
    f"segment -m {'x' * 300} abc",
    "segment -m runs/stroy abc",
    "evaluate -m folder",
    "generate -m empty.txt",
    "generate -m runs/fresh",
    "segment -m runs/story abc --device abacus",
    "segment -m runs/story abXc --unknown refuse",
    "generate -m runs/story abXc --unknown refuse",
    "segment -m runs/story",
    "segment -m runs/story abc --file story.txt",
    "segment -m runs/story abc de fgh --json a - b",
    "generate abc de",
    "score abc de --bogus",
    "data story.txt --path other.txt",
    "data labels story.txt --archive made.npz",
    "data text story.txt --path other.txt",
    "segment -m runs/story --file nowhere.txt",
    "score --file stroy.txt",
    "segment -m runs/story abc --out found",
    "segment -m runs/story abc --resume",
    "segment -m runs/story --file latin1.txt",
    "segment -m runs/story --file picture.png",
    "evaluate -m runs/story --file picture.png",
    "segment -m runs/story abc --width -3",
    "generate -m runs/story --length -1",
    "generate -m runs/story --length 4611686018427387905",
    "generate --length 9223372036854775808",
    f"generate --length {'9' * 5000}",
    "generate -m runs/story --samples 4611686018427387904",
    "generate -m runs/story --samples 2 --length 9999999999",
    "generate -m handwriting-small --samples 9999999999",
    "generate -m handwriting-small --length 9999999999",
    "generate -m runs/story --temperature -1",
    "generate -m runs/story --top-k 0",
    "generate -m runs/story --top-p 2",
    "evaluate -m runs/story --split dev",
    "evaluate -m runs/story --file nowhere.txt",
    "evaluate -m runs/story --file empty.txt",
    "evaluate -m runs/story --file other.txt",
    "evaluate -m runs/story --path other.txt",
    "evaluate -m runs/story --symbols -9",
    "evaluate -m runs/story --symbols 1",
    "evaluate -m runs/story --streams 0",
    "plot -m handwriting-small --file /",
    "plot -m runs/story abc --figure 6",
    "plot abc --figure 9",
    "plot -m runs/story abc --out f.bmp",
    "plot -m runs/story abc --out no/f.png",
    "plot -m handwriting-small --levels 9",
    "plot -m folder --figure curves",
    "data nowhere.txt",
]


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused_is_named(work: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    said = complaint(work, capsys, *command.split(" "))
    words = command.split()[1:] or [command]
    assert any(word.strip("-")[:40] in said for word in words) or command in NAMELESS, said


def test_a_terminal_with_nothing_typed(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for arguments in (("segment", "-m", "runs/story"), ("segment",), ("score",), ("plot",)):
        said = complaint(work, capsys, *arguments)
        assert said == "no text: give one as an argument, by --file, or on standard input"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("train story.txt --bogus", ("--bogus", "train --help")),
        ("evaluate -m runs/story --jsn", ("--jsn", "--json")),
        ("score abc de", ("score", "de")),
    ],
)
def test_a_terminal_with_colours(
    work: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    named: tuple[str, ...],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    said = complaint(work, capsys, *command.split(" "))
    assert all(word in said for word in named)
    assert "\x1b" not in said


def test_standard_input_that_is_not_utf8(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\xe9"), encoding="utf-8"))
    assert "standard input is not UTF-8 text" in complaint(work, capsys, "segment", "-m", "runs/story")


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def apply(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new))

    return apply


CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda best: shutil.rmtree(best), ""),
    "truncated": (lambda best: os.truncate(best / "model.safetensors", 99), "model.safetensors is damaged: its size"),
    "version": (edit("manifest.json", '"format": 1', '"format": 2'), "format 2, this hmrnn reads format 1"),
    "vocabulary": (edit("input.json", '"h"', '"z"'), "input.json is damaged"),
}


COMMANDS = ("evaluate", "segment abc", "generate", "plot abc")


@pytest.mark.parametrize(("name", "command"), list(zip(CHECKPOINTS, COMMANDS, strict=True)))
def test_checkpoints(work: Path, capsys: pytest.CaptureFixture[str], name: str, command: str) -> None:
    """All commands load them by the same function."""
    damage, message = CHECKPOINTS[name]
    damage(work / BEST)
    what = BEST if message == "" else "runs/story"
    said = complaint(work, capsys, *command.split(), "-m", what)
    assert message in said if message else said.startswith(f"no checkpoint at {BEST}")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda last: os.truncate(last / "training.safetensors", 9), "training.safetensors is damaged: its size"),
        (edit("manifest.json", '"format": 1', '"format": 2'), "format 2, this hmrnn reads format 1"),
        (lambda last: shutil.rmtree(last), "stopped before its first checkpoint"),
    ],
)
def test_resuming_from_a_bad_checkpoint(
    work: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], message: str
) -> None:
    damage(work / "runs" / "story" / "last-00000005")
    before = tree(work)
    assert tiny.hmrnn("train", "story.txt", "--resume") == 2
    assert message in capsys.readouterr().err
    assert tree(work) == before


def test_resuming_after_the_text_has_changed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same symbols, the same length: only the checksum can tell."""
    (work / "story.txt").write_text((work / "story.txt").read_text()[::-1])
    assert "not those this run began with" in complaint(work, capsys, "train", "story.txt", "--resume")


def test_a_run_that_is_being_written(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = RunDirectory(Path("runs/story"))
    with here.open():
        for flag in ("--resume", "--overwrite"):
            said = complaint(work, capsys, "train", "story.txt", flag, *([] if flag == "--resume" else FLAGS))
            assert said.startswith("another process is writing to runs/story")


def test_damaged_metrics(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("runs/story/metrics.jsonl", "a") as file:
        file.write('{"event": "tra')
    said = complaint(work, capsys, "plot", "-m", "runs/story", "--figure", "curves")
    assert "metrics.jsonl is damaged in line " in said
    assert "; fix or remove that line" in said


def test_a_corpus_whose_vocabulary_is_another(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint whose files agree with each other but not with the corpus it names."""
    saved = checkpoint.read(Path(BEST))
    vocabulary = type(saved.reads)("characters", tuple("ABCDEFGHI"))
    shutil.rmtree(BEST)
    checkpoint.write(Path(BEST), saved._replace(reads=vocabulary))
    assert "the corpus has another vocabulary (9 symbols)" in complaint(work, capsys, "evaluate", "-m", "runs/story")


def test_a_process_of_its_own(work: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hmrnn", "train", "nowhere.txt"]
    done = subprocess.run(command, capture_output=True, text=True, env=tiny.environment(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hmrnn: 'nowhere.txt' is neither a preset")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away(work: Path, tmp_path: Path) -> None:
    """`hmrnn ... | head` is no error."""
    command = f"{sys.executable} -m hmrnn generate -m runs/story --length 3000 | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        env=tiny.environment(tmp_path / "cache"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) == 10


def test_json_of_a_run_is_plain(work: Path) -> None:
    stored = json.loads((work / "runs" / "story" / "config.json").read_text())
    assert stored["model"]["hidden_size"] == [6, 5, 4]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("segment abc --streams 4", "--streams is for --stream; give both"),
        ("segment abc --warmup 0", "--warmup is for --stream; give both"),
        ("segment --stream a.txt --out o --json", "--stream cannot be combined with --json"),
        ("segment --stream a.txt --out o --width 3", "--width cannot be combined with --stream"),
        ("segment --stream a.txt --out o --line 2", "--line is for strokes"),
        ("segment abc --line 1", "--line"),
        ("plot abc --line 1", "--line is for strokes"),
        ("plot abc --levels 1 --figure 3", "--levels is for strokes"),
        ("plot abc --figure curves", "a text has no effect with --figure curves"),
        ("plot --figure curves --unknown skip", "--unknown has no effect with --figure curves"),
    ],
)
def test_flags_that_would_do_nothing(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.saved_model(tmp_path / "model")
    (tmp_path / "a.txt").write_text("abc")
    name, *rest = command.split()
    assert tiny.hmrnn(name, "-m", "model", *rest) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "model"]


@pytest.mark.parametrize(
    "command",
    [
        "train loop", "train text loop", "train story.txt --from loop", "train story.txt --out loop",
        "data loop", "data iamondb --path loop", "data labels loop",
        "segment -m loop abc", "segment -m runs/story --file loop", "segment -m runs/story --stream loop --out x",
        "evaluate -m runs/story --file loop", "plot -m handwriting-small --file loop", "predict -m loop",
        "generate -m handwriting-small --prime loop", "export -m runs/story --out loop",
    ],
)  # fmt: skip
def test_a_link_to_itself_is_called_one(work: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (work / "loop").symlink_to("loop")
    said = complaint(work, capsys, *command.split(" "))
    assert "did you mean" not in said
    if "--out" not in command:
        assert "loop is a link in a loop of links" in said


@pytest.mark.parametrize("flags", ["--model.hidden-size 99999", "--model.output-size 2147483647"])
def test_sizes_past_the_memory(work: Path, capsys: pytest.CaptureFixture[str], flags: str) -> None:
    with fuzz.bounded_memory():
        said = complaint(work, capsys, "train", "story.txt", *FLAGS, *flags.split(" "), "--out", "new")
    assert said.startswith("the memory does not hold ")
