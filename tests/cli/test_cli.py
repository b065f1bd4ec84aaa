"""The commands as people use them: from a text file to a model, its segments, its texts and its figures."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import hmrnn
import tiny
from hmrnn import checkpoint
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer

CONFIG = tiny.config(epochs=1, length=10, batch_size=16)
FLAGS = tiny.flags(CONFIG)


@pytest.fixture(scope="module")
def work(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a text and, in runs/story, a model trained on it."""
    copy = shutil.copytree(trained, tmp_path_factory.mktemp("work"), dirs_exist_ok=True)
    with tiny.story(copy) as work:
        yield work


@pytest.fixture(scope="module")
def model(work: Path) -> hmrnn.TextModel:
    model = hmrnn.load("runs/story")
    assert isinstance(model, hmrnn.TextModel)
    return model


def test_train_shows_and_keeps_what_it_does(work: Path, command: tiny.Command) -> None:
    out = Path("runs", "shown")
    lines = command(f"train story.txt --out {out}", *FLAGS, "--report").splitlines()
    assert command.err == ""
    assert lines[0] == "story.txt: 810 symbols to train on, 9 distinct"
    assert re.match(r"model: layers of 6, 5, 4; .* parameters; engine \w+ on cpu$", lines[1])
    assert lines[2] == f"run: {out}"
    assert re.search(r"bits/char.* chars/s, boundary rates z1=0\.", lines[3])
    (validation,) = (line for line in lines if line.startswith("epoch 1.00  validation "))
    assert validation.endswith("(best so far)")
    assert lines[-2] == f"report: {out / 'report.html'}"
    assert re.fullmatch(rf"try: hmrnn segment -m {out} '[a-h ]+'", lines[-1])  # words of the story itself
    assert len(lines) == 3 + len(read_metrics(out / "metrics.jsonl")) + 3
    # the defaults of the preset, the flags, and the name of the file for a run without --out
    stored = RunDirectory(Path("runs", "story")).config()
    assert stored.data == TextData(path=("story.txt",))
    assert (stored.model, stored.train) == (CONFIG.model, CONFIG.train)


def test_evaluate(work: Path, model: hmrnn.TextModel, command: tiny.Command) -> None:
    text = (work / "story.txt").read_text()
    expected = model.score(text[-45:])
    out = command("evaluate -m runs/story --streams 1").splitlines()
    assert out[1].split()[-1] == f"{expected.bits:.4f}"
    assert out[-1].split()[-1] == f"{expected.multiply_adds:,.0f}"

    expected = model.score(text[810:855])
    record = command.json("evaluate -m runs/story --split valid --streams 1 --json")
    assert record["bits"] == pytest.approx(expected.bits)
    assert record["rates"] == pytest.approx(list(expected.rates))
    assert (record["symbols"], record["text"]) == (44, "story.txt, valid part")

    (work / "new.txt").write_text("abc de fgh " * 9)
    record = command.json("evaluate -m runs/story --file new.txt --symbols 50 --json")
    assert record["bits"] == pytest.approx(model.score(("abc de fgh " * 9)[:50]).bits)
    assert (record["streams"], record["warmup"]) == (1, 0)  # too short to be cut
    record = command.json("evaluate -m runs/story --split train --warmup 200 --json")
    assert (record["symbols"], record["streams"], record["warmup"]) == (809, 4, 200)
    for flag in ("--split test", "--path new.txt"):
        assert flag.split()[0] in command.refused(f"evaluate -m runs/story --file new.txt {flag}")

    shutil.copy("story.txt", "moved.txt")
    there = command.json("evaluate -m runs/story --path moved.txt --json")
    assert {**command.json("evaluate -m runs/story --json"), "text": "moved.txt, test part"} == there


def test_segment(work: Path, model: hmrnn.TextModel, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.segment("abc de fgh")
    plain = command("segment -m runs/story 'abc de fgh'")
    assert plain == f"{expected.render(width=80)}\n{expected.updates()}\n"
    assert "\x1b" not in plain
    tiny.stdin(monkeypatch, "abc de fgh\n")  # as echo writes it
    assert command("segment --model runs/story") == plain
    (work / "text.txt").write_text("abc de fgh\n")
    assert command.json("segment -m runs/story --file text.txt --json") == expected.to_dict()
    assert command("segment -m runs/story 'abc de fgh' --width 5").startswith(expected.render(width=5))


def test_generate(work: Path, model: hmrnn.TextModel, command: tiny.Command) -> None:
    first, again, other = (command(f"generate -m runs/story 'abc ' --length 60 --seed {seed}") for seed in (1, 1, 2))
    assert first == "abc " + model.generate("abc ", 60, temperature=0.8, seed=1) + "\n"
    assert first == again != other
    assert len(other) == 4 + 60 + 1
    likeliest = command("generate -m runs/story --length 9 --temperature 0")
    for flag in ("--top-k 1", "--top-p 1e-9"):
        assert command(f"generate -m runs/story --length 9 --temperature 1.5 {flag}") == likeliest


@pytest.mark.parametrize(
    ("figure", "name", "begins"),
    [
        ("3 'abc de fgh'", "a.svg", b"<?xml"),
        ("4 'abc de fgh'", "a.png", b"\x89PNG"),
        ("curves", "a.pdf", b"%PDF"),
    ],
)
def test_plot(work: Path, command: tiny.Command, figure: str, name: str, begins: bytes) -> None:
    assert command(f"plot -m runs/story --out {name} --figure {figure}") == f"wrote {name}\n"
    assert Path(name).read_bytes().startswith(begins)


def test_files_that_are_no_prose_are_asked_about(work: Path, command: tiny.Command) -> None:
    for name in ("dna.fasta.gz", "a b.csv"):
        (work / name).write_text("story")
        for line in ("train", "data"):
            assert name.split(".")[-2] in command.refused(line, name)
    (work / "a.conllu").write_text(9 * ("1\tthe\tthe\tDET" + 6 * "\t_" + "\n2\tcat\tcat\tNOUN" + 6 * "\t_" + "\n\n"))
    assert "sequences" in command("data a.conllu")


def test_bytes(work: Path, command: tiny.Command) -> None:
    (work / "greek.txt").write_text("αβγ δε\n" * 60)
    out = command("train greek.txt --data.bytes", *FLAGS, "--report")
    assert re.search(r"bits/byte, .* bytes/s", out)
    assert "char" not in out
    assert "validation, bits per byte" in (work / "runs" / "greek" / "report.html").read_text()
    assert command("generate -m runs/greek αβ --length 30 --seed 1").startswith("αβ")
    assert command.json("segment -m runs/greek αβ --json")["symbols"] == ["\\xce", "\\xb1", "\\xce", "\\xb2"]


@pytest.mark.parametrize(
    ("changes", "limit"), [({"cool_down": 0.5}, "epochs"), ({"epochs": 9, "min_improvement": 9.0}, "divisions")]
)
def test_a_finished_run_says_what_lets_it_go_on(
    work: Path, changes: dict[str, float], limit: str, command: tiny.Command
) -> None:
    run, raise_it = f"train story.txt --out runs/{limit}", f"--train.{limit}"
    assert raise_it not in command(run, *tiny.flags(tiny.changed(CONFIG, divisions=0, **changes)))
    assert raise_it in command(f"{run} --resume --no-report")
    assert "--train" not in command.err
    assert raise_it not in command(f"{run} --resume --no-report {raise_it} 2")
    assert ("train.cool_down" in command.err) == (limit == "epochs")  # the schedule of which goes over another time


def test_a_signal_saves_and_says_how_to_go_on(
    work: Path, tmp_path: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run then ends as if nothing had been."""
    out, update = tmp_path / "a run", Trainer.step
    config = tiny.config(epochs=1000, log_every=1, estimator="sample", length=10, batch_size=16)

    def interrupted(trainer: Trainer) -> None:
        update(trainer)
        if trainer.progress.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        shown = command("train story.txt", *tiny.flags(config), "--out", out, status=128 + signal.SIGINT)
    assert command.err == ""
    assert RunDirectory(out).newest_progress()["step"] == 7
    assert tiny.hmrnn(shown.splitlines()[-1].removeprefix("  hmrnn "), "--train.epochs", 2) == 0
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=2))
    tiny.run(tmp_path / "whole", config, text=load_corpus(TextData(path=("story.txt",))))
    whole, parts = tiny.contents(tmp_path / "whole"), tiny.contents(out)
    assert whole["metrics"] == parts["metrics"]
    assert whole["last-00000010/model.safetensors"] == parts["last-00000010/model.safetensors"]


def test_a_run_whose_output_nobody_reads_stops_and_loses_nothing(
    work: Path, tmp_path: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under | head."""
    end, begin = os.pipe()

    def head() -> None:
        with open(end) as lines:
            next(line for line in lines if "bits/char" in line)

    reader = threading.Thread(target=head)
    reader.start()
    flags = tiny.flags(tiny.changed(CONFIG, epochs=1000, log_every=1))
    with open(begin, "w", buffering=1) as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        command(f"train story.txt --out {tmp_path}", *flags, status=128 + signal.SIGTERM)
    reader.join()
    step = RunDirectory(tmp_path).newest_progress()["step"]
    assert f" step {step};" in command.err
    assert "--resume" in command.err.splitlines()[-1]


def test_training_does_not_start_where_its_output_cannot_be_written(
    work: Path, tmp_path: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert os.strerror(28) in command.refused(f"train story.txt --out {tmp_path / 'run'}", *FLAGS)
    assert not checkpoint.checkpoints(tmp_path / "run")
