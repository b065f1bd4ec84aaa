"""The demo, with a model too small to learn: every step of it, an interruption, and a second look."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import tiny
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.training.metrics import read_metrics
from hmrnn.training.trainer import Trainer


def test_the_demo(tmp_path: Path, command: tiny.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("hmrnn.kinds.text.novel.PACKAGE", "no_such_package")  # so that it reads the manual everywhere
    monkeypatch.setattr("hmrnn.cli.train.write_report", lambda run, metrics, corpus: run / f"{len(metrics)}.html")
    small = {"model.hidden_size": (16,), "model.output_size": 16}
    data = {"data.valid_fraction": 0.02, "data.test_fraction": 0.88, "train.epochs": 1, "train.batch_size": 128}
    monkeypatch.setitem(PRESETS, "demo", PRESETS["demo"].changed(small | data))
    run = tmp_path / "runs" / "demo"

    with monkeypatch.context() as patch:  # Ctrl-C in the middle
        step = Trainer.step

        def interrupted(trainer: Trainer) -> None:
            step(trainer)
            if trainer.progress.step == 3:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(Trainer, "step", interrupted)
        out = command("demo", status=130)
    assert command.err == ""
    assert out.endswith("hmrnn demo --out runs/demo\n")
    assert "bits per character" not in out.lower()

    first = command("demo")
    steps = [line["step"] for line in read_metrics(run / "metrics.jsonl") if line["event"] == "train"]
    assert len(steps) == len(set(steps))
    assert f"runs/demo/{len(read_metrics(run / 'metrics.jsonl'))}.html" in first
    assert "no_such_package" in first

    monkeypatch.setattr(
        "hmrnn.cli.train.run_to_end", lambda *a, **k: pytest.fail("a finished demo must not train again")
    )
    kept = {path: path.read_bytes() for path in run.glob("*-0*/*")}
    second = command("demo")
    assert "hmrnn demo --out runs/demo --fresh" in second.splitlines()[0]
    start = "The network found these segments"
    assert second[second.index(start) :] == first[first.index(start) :]
    assert {path: path.read_bytes() for path in run.glob("*-0*/*")} == kept
