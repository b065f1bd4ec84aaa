"""hmrnn train --from: a run that starts from a model."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

import tiny
from hmrnn.config import Config
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a finished run in runs/story and another text in book.txt."""
    shutil.copytree(trained / "runs", tmp_path / "runs")
    (tmp_path / "book.txt").write_text(tiny.text(900, seed=1).replace("cab", "Xé"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    return tmp_path


def settings(run: str) -> Config:
    return RunDirectory(Path(run)).config()


def test_a_run_and_its_resume(folder: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    train = "train book.txt --from runs/story --no-report --train.epochs 2 --detectors.slope 1 3 --out"
    shown = command(f"{train} whole")
    lines = [line for line in read_metrics(Path("whole/metrics.jsonl")) if line["event"] == "valid"]
    assert [line["step"] for line in lines] == [0, 4, 8]
    best = min(line["bits"] for line in lines)
    assert f"bits per character: {lines[0]['bits']:.4f} by runs/story, {best:.4f} fine-tuned" in shown
    story, book = settings("runs/story"), settings("whole")
    assert book.model == story.model
    assert book.train.start_from == "runs/story"
    assert book.train.learning_rate < story.train.learning_rate
    assert book.data.symbols == " abcdefgh"
    assert book.detectors.slope == (1.0, 3.0)

    with monkeypatch.context() as patch:
        step = Trainer.step

        def interrupted(trainer: Trainer) -> None:
            step(trainer)
            if trainer.progress.step == 3:
                os.kill(os.getpid(), signal.SIGTERM)

        patch.setattr(Trainer, "step", interrupted)
        command(f"{train} parts", status=143)
    shutil.rmtree("runs/story")  # a resumed run does not need it
    assert "hmrnn segment -m parts " in command("train book.txt --out parts --resume --no-report")
    assert tiny.contents(Path("parts")) == tiny.contents(Path("whole"))
    assert command.refused("train book.txt --out parts --resume --from elsewhere").startswith("--from: ")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--from english-smal", "english-smal"),
        ("--from handwriting-small", "handwriting-small"),
        ("--from runs/story --model.num-layers 2", "--model.num-layers 2"),
        ("--from runs/story --data.bytes", "--data.bytes"),
        ("--from runs/story --data.format enwik8", "--data.format enwik8"),
    ],
)
def test_clear_errors(folder: Path, command: tiny.Command, flags: str, named: str) -> None:
    assert named in command.refused(f"train book.txt --out new {flags}")
    assert not Path("new").exists()
