"""Two processes on the CPU, started by torchrun, do what one process does with the same batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny
from hmrnn import checkpoint
from hmrnn.config import DataConfig
from hmrnn.data import load_corpus
from hmrnn.errors import InputError
from hmrnn.rundir import RunDirectory
from hmrnn.train import read_metrics

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hmrnn")


def start(work: Path, *arguments: object) -> subprocess.Popen[str]:
    environment = {name: value for name, value in tiny.environment(work / "cache").items() if name != "RANK"}
    return subprocess.Popen(
        [sys.executable, *TORCHRUN, *map(str, arguments)],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tensors(directory: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(directory, "last") / name)


def test_two_processes_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by a signal, resumed, finished: weights, state, optimizer and metrics are those of one process."""
    (tmp_path / "story.txt").write_text(tiny.text(900))
    changes = {"batch_size": 16, "length": 10, "accumulate": 2, "log_every": 3, "slope_rate": 0.5}
    out = tmp_path / "two"
    flags = tiny.flags(tiny.config(epochs=1000, **changes))
    process = start(tmp_path, "train", "story.txt", "--out", out, *flags)
    assert process.stdout is not None
    while "bits/char" not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    os.kill(process.pid, signal.SIGTERM)
    text, errors = process.communicate(timeout=90)
    progress = RunDirectory(out).newest_progress()
    assert f"stopped by SIGTERM at step {progress['step']}; everything is saved." in text, errors
    epochs = progress["epoch"] + 1

    process = start(tmp_path, "train", "story.txt", "--out", out, "--resume", "--train.epochs", epochs)
    text, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert f"done: all {epochs} epochs are done" in text
    assert "on cpu, 2 processes" in text
    assert text.count("done:") == 1  # one of them speaks for both

    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    config = tiny.config(epochs=epochs, **changes)
    tiny.run(tmp_path / "one", config, text=load_corpus(DataConfig(path=("story.txt",))))

    one, two = (tensors(tmp_path / name, "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=2e-6, rtol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    one, two = (tensors(tmp_path / name, "training.safetensors") for name in ("one", "two"))
    assert two.keys() - one.keys() == {"random.cpu.1", "window.1"}
    assert two["state.h.0"].shape == (16, 6)
    for name, value in one.items():
        if name.startswith(("state", "optimizer")):
            torch.testing.assert_close(two[name], value, atol=5e-6, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two")]
    assert len(lines[0]) == len(lines[1])
    for ours, theirs in zip(*lines):
        assert (ours["event"], ours["step"]) == (theirs["event"], theirs["step"])
        assert theirs["bits"] == pytest.approx(ours["bits"], abs=1e-5)
        assert theirs["rates"] == pytest.approx(ours["rates"], abs=1e-6)

    with pytest.raises(InputError, match=r"made by 2 process\(es\) and can only go on with as many; got 1"):
        tiny.run(out, config, resume=True, text=load_corpus(DataConfig(path=("story.txt",))))
    assert json.loads((out / "config.json").read_bytes())["train"]["epochs"] == epochs
