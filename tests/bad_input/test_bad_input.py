"""Whatever is wrong: one line that says what was expected, exit status 2, and nothing created or changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from complaints import BEST, FLAGS, LAST, Complaint

import attack
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
    "words blank.txt",
    "words signs.txt",
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
    "data iamondb iam --split official",
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
    "data labels story.txt --archive made.npz",
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
    "words nowhere.txt",
    "words empty.txt",
    "words short.txt",
    "words blank.txt",
    "words binary.txt",
    "words latin1.txt",
    "words signs.txt",
    "segment -m runs/story --stream story.txt empty.txt --out found",
    "segment -m runs/story --stream story.txt late.txt --out found",
    "segment -m runs/story --stream binary.txt --out found",
    "segment --ray story.txt",
    "segment --ray story.txt --out found --unknown refuse",
    "segment --ray nowhere.txt --out found",
    "segment abc --workers 2",
]


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_is_named(complaint: Complaint, line: str) -> None:
    said = complaint(line)
    words = line.split()[1:] or [line]
    assert any(word.strip("-")[:40] in said for word in words) or line in NAMELESS, said


def test_a_terminal_with_nothing_typed(complaint: Complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for line in ("segment -m runs/story", "segment", "score", "plot"):
        assert "--file" in complaint(line)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("train story.txt --bogus", ("--bogus", "train --help")),
        ("evaluate -m runs/story --jsn", ("--jsn", "--json")),
        ("score abc de", ("score", "de")),
    ],
)
def test_a_terminal_with_colours(
    complaint: Complaint, monkeypatch: pytest.MonkeyPatch, line: str, named: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    said = complaint(line)
    assert all(word in said for word in named)
    assert "\x1b" not in said


def test_standard_input_that_is_not_utf8(complaint: Complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.stdin(monkeypatch, b"abc\xe9")
    assert "0xe9" in complaint("segment -m runs/story")


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def apply(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new))

    return apply


VERSION = edit("manifest.json", '"format": 1', '"format": 2')
BAD_CHECKPOINTS: list[tuple[str, str, Callable[[Path], object], str]] = [
    ("evaluate -m runs/story", BEST, lambda best: os.truncate(best / "model.safetensors", 99), "model.safetensors"),
    ("segment abc -m runs/story", BEST, VERSION, "format 2"),
    ("generate -m runs/story", BEST, edit("input.json", '"h"', '"z"'), "input.json"),
    (f"plot abc -m {BEST}", BEST, shutil.rmtree, BEST),
    ("train story.txt --resume", LAST, lambda last: os.truncate(last / "training.safetensors", 9), "training.saf"),
    ("train story.txt --resume", LAST, VERSION, "format 2"),
    ("train story.txt --resume", LAST, shutil.rmtree, "runs/story"),
]


@pytest.mark.parametrize(("line", "name", "damage", "named"), BAD_CHECKPOINTS)
def test_checkpoints(
    work: Path, complaint: Complaint, line: str, name: str, damage: Callable[[Path], object], named: str
) -> None:
    """All commands load them by the same function."""
    damage(work / name)
    assert named in complaint(line)


def test_resuming_after_the_text_has_changed(work: Path, complaint: Complaint) -> None:
    """The same symbols, the same length: only the checksum can tell."""
    (work / "story.txt").write_text((work / "story.txt").read_text()[::-1])
    complaint("train story.txt --resume")


def test_a_run_that_is_being_written(complaint: Complaint) -> None:
    with RunDirectory(Path("runs/story")).open():
        for line in ("train story.txt --resume", f"train story.txt --overwrite {' '.join(FLAGS)}"):
            assert "runs/story" in complaint(line)


def test_damaged_metrics(complaint: Complaint) -> None:
    with open("runs/story/metrics.jsonl", "a") as file:
        file.write('{"event": "tra')
    count = len(Path("runs/story/metrics.jsonl").read_text().splitlines())
    assert f"metrics.jsonl is damaged in line {count}" in complaint("plot -m runs/story --figure curves")


def test_a_corpus_whose_vocabulary_is_another(complaint: Complaint) -> None:
    """A checkpoint whose files agree with each other but not with the corpus it names."""
    saved = checkpoint.read(Path(BEST))
    vocabulary = type(saved.reads)("characters", tuple("ABCDEFGHI"))
    shutil.rmtree(BEST)
    checkpoint.write(Path(BEST), saved._replace(reads=vocabulary))
    assert "9 symbols" in complaint("evaluate -m runs/story")


def test_a_reader_that_goes_away_and_a_process_of_its_own(work: Path, tmp_path: Path) -> None:
    """`hmrnn ... | head` is no error; what is refused is a line and a status there, too."""
    for line, found in (
        ("generate -m runs/story --length 3000 | head -c 10", (0, 10, 0)),
        ("train nowhere.txt", (2, 0, 1)),
    ):
        shell = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m hmrnn {line}"]
        done = subprocess.run(shell, capture_output=True, text=True, env=tiny.environment(tmp_path / "cache"))
        assert (done.returncode, len(done.stdout), done.stderr.count("\n")) == found


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("segment abc --streams 4", "--streams"),
        ("segment abc --warmup 0", "--warmup"),
        ("segment --stream a.txt --out o --json", "--json"),
        ("segment --stream a.txt --out o --width 3", "--width"),
        ("segment --stream a.txt --out o --line 2", "--line"),
        ("segment --stream a.txt --out o --threshold 0.8", "--threshold"),
        ("segment --stream a.txt --out o --prefer recall", "--prefer"),
        ("segment --stream --streams 3", "--streams"),
        ("segment --stream --warmup 3", "--warmup"),
        ("segment abc --line 1", "--line"),
        ("plot abc --line 1", "--line"),
        ("plot abc --levels 1 --figure 3", "--levels"),
        ("plot abc --figure curves", "--figure curves"),
        ("plot --figure curves --unknown skip", "--unknown"),
    ],
)
def test_flags_that_would_do_nothing(line: str, named: str, work: Path, complaint: Complaint) -> None:
    (work / "a.txt").write_text("abc")
    assert named in complaint(f"{line} -m runs/story")


@pytest.mark.parametrize(
    "line",
    [
        "train loop", "train text loop", "train story.txt --from loop", "train story.txt --out loop",
        "data loop", "data iamondb loop", "data labels loop",
        "segment -m loop abc", "segment -m runs/story --file loop", "segment -m runs/story --stream loop --out x",
        "evaluate -m runs/story --file loop", "plot -m handwriting-small --file loop", "predict -m loop",
        "generate -m handwriting-small --prime loop", "export -m runs/story --out loop",
    ],
)  # fmt: skip
def test_a_link_to_itself_is_called_one(work: Path, complaint: Complaint, line: str) -> None:
    (work / "loop").symlink_to("loop")
    said = complaint(line)
    assert "did you mean" not in said
    if "--out" not in line:
        assert "loop is a link in a loop of links" in said


@pytest.mark.parametrize("flags", ["--model.hidden-size 99999", "--model.output-size 2147483647"])
def test_sizes_past_the_memory(complaint: Complaint, flags: str) -> None:
    with attack.bounded_memory():
        assert "memory" in complaint(f"train story.txt {' '.join(FLAGS)} {flags} --out new")
