"""Two processes on the CPU, started by torchrun, do what one process does with the same batch."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

import tiny
from hmrnn import checkpoint
from hmrnn.cli import train as commands
from hmrnn.config import DataConfig
from hmrnn.data import load_corpus
from hmrnn.errors import InputError
from hmrnn.training.loop import Trainer, read_metrics
from hmrnn.training.rundir import RunDirectory

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


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it still has to say; a process that hangs is ended, and with it those it started."""
    try:
        return process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(timeout=60)
        raise


def tensors(directory: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(directory, "last") / name)


DETECTORS: dict[str, dict[str, Any]] = {
    "alive": {"detector_bias": (0.1, 5.0)},
    "controlled": {  # as real values, whose lack of a mean is the mean lack of all parts
        "boundary": "soft", "detector_bias": (0.1, 5.0), "rate_targets": (0.4, 0.99), "rate_weight": 0.0,
        "rate_control": 0.02,
    },
}  # fmt: skip


def stop_soon(process: subprocess.Popen[str], out: Path) -> int:
    """SIGTERM once it has begun to learn; how many epochs it has then begun."""
    assert process.stdout is not None
    while "bits/char" not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]
    os.kill(process.pid, signal.SIGTERM)
    text, errors = finish(process)
    progress = RunDirectory(out).newest_progress()
    assert f"stopped by SIGTERM at step {progress['step']}; everything is saved." in text, errors
    return progress["epoch"] + 1


@pytest.mark.parametrize(("detectors", "stopped"), [("alive", False), ("controlled", True)])
def test_two_processes_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detectors: str, stopped: bool) -> None:
    """Weights, state, optimizer and metrics are those of one process, also if stopped by a signal and resumed."""
    (tmp_path / "story.txt").write_text(tiny.text(900))
    changes: dict[str, Any] = {
        "batch_size": 16, "length": 10, "accumulate": 2, "log_every": 3, "slope_rate": 0.5, "weight_decay": 0.3,
        "average": 0.9, **DETECTORS[detectors],
    }  # fmt: skip
    out = tmp_path / "two"
    epochs = 1000 if stopped else 5
    process = start(tmp_path, "train", "story.txt", "--out", out, *tiny.flags(tiny.config(epochs=epochs, **changes)))
    if stopped:
        epochs = stop_soon(process, out)
        assert epochs < 10, "stopped too late: what two processes and one differ by grows from epoch to epoch"
        process = start(tmp_path, "train", "story.txt", "--out", out, "--resume", "--train.epochs", epochs)
    text, errors = finish(process)
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
    assert two.keys() - one.keys() == {"random.cpu.1", "window.1", "epoch.1"}
    assert two["state.h.0"].shape == (16, 6)
    for name, value in one.items():
        if name.startswith(("state", "optimizer", "average")):
            torch.testing.assert_close(two[name], value, atol=5e-6, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two")]
    assert len(lines[0]) == len(lines[1])
    assert "detector" in {line["event"] for line in lines[0]}
    for ours, theirs in zip(*lines):
        assert (ours["event"], ours["step"]) == (theirs["event"], theirs["step"])
        if ours["event"] == "detector":
            assert (ours["layer"], ours["condition"]) == (theirs["layer"], theirs["condition"]) == (2, "always")
            continue
        assert theirs["bits"] == pytest.approx(ours["bits"], abs=1e-5)
        assert theirs["rates"] == pytest.approx(ours["rates"], abs=1e-6)

    with pytest.raises(InputError, match=r"made by 2 process\(es\) and can only go on with as many; got 1"):
        tiny.run(out, config, resume=True, text=load_corpus(DataConfig(path=("story.txt",))))
    assert json.loads((out / "config.json").read_bytes())["train"]["epochs"] == epochs


GROUP_AND_NETWORK = """
import gc
import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

from hmrnn.training.loop import processes

with processes(torch.device("cpu")):
    group = weakref.ref(torch.distributed.group.WORLD)
    network = DistributedDataParallel(torch.nn.Linear(2, 2))
    del network
    gc.collect()
print(group())
"""


def test_nothing_keeps_the_process_group(tmp_path: Path) -> None:
    """Were it kept, gloo's threads would live on, and one that lets go of a tensor at the very end aborts Python."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    environment = tiny.environment(tmp_path / "cache") | alone
    command = [sys.executable, "-c", GROUP_AND_NETWORK]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.stdout == "None\n", result.stderr
    assert result.returncode == 0, result.stderr


def test_the_network_goes_before_the_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If DistributedDataParallel lets go of it last, its destructor waits for threads that wait for Python."""
    alive, ended = [], []

    class Watched(Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            alive.append(weakref.ref(self))

    def destroy() -> None:
        assert [trainer() for trainer in alive] == [None]
        ended.append(True)

    monkeypatch.setattr(commands, "Trainer", Watched)
    monkeypatch.setenv("RANK", "0")
    for name, stand_in in (
        ("init_process_group", lambda backend: None),
        ("get_rank", lambda: 0),
        ("get_world_size", lambda: 1),
        ("destroy_process_group", destroy),
    ):
        monkeypatch.setattr(dist, name, stand_in)
    monkeypatch.setattr(commands, "load_corpus", lambda config, progress, training: tiny.corpus())
    gc.disable()
    try:
        assert commands.run_to_end(tiny.config(epochs=1), RunDirectory(tmp_path / "run"), again="") == 0
    finally:
        gc.enable()
    assert len(alive) == len(ended) == 1
