"""Two processes on the CPU do what one process does with the same batch."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import two_processes
from safetensors.torch import load_file

import tiny
from hmrnn import checkpoint
from hmrnn.cli import train as commands
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.kind import Text
from hmrnn.kinds.text.settings import TextData
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from refusals import refused


def tensors(directory: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.find(directory, "last") / name)


DETECTORS: dict[str, dict[str, Any]] = {
    "alive": {"bias": (0.1, 5.0), "optimizer": "muon"},
    "controlled": {  # as real values, whose lack of a mean is the mean lack of all parts
        "estimator": "soft", "bias": (0.1, 5.0), "rates": (0.4, 0.99), "rate_weight": 0.0,
        "rate_control": 0.02,
    },
}  # fmt: skip


# The reference rounds alike on all processors; Adam makes up to 1e-4 of a last digit in V.
CHANGES: dict[str, Any] = {
    "engine": "reference", "epochs": 2, "batch_size": 16, "length": 10, "accumulate": 2, "log_every": 3,
    "slope": (0.5, 5.0), "weight_decay": 0.3, "average": 0.9,
}  # fmt: skip


def test_two_processes_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of their runs is stopped and resumed."""
    monkeypatch.setenv("HMRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(tiny.text(900))
    configs = {name: tiny.config(**CHANGES, **changes) for name, changes in DETECTORS.items()}
    text = load_corpus(TextData(path=("story.txt",)))
    for name, config in configs.items():  # first, so that the processes need not import anything again
        tiny.run(tmp_path / "one" / name, config, text=text)
    assert two_processes.fork(*(tiny.flags(config) for config in configs.values())) == ["", ""]

    (stopped,) = [line for line in (tmp_path / "stopped.0.txt").read_text().splitlines() if "stopped by" in line]
    assert stopped.startswith("stopped by SIGTERM at step 3; everything is saved.")
    for name, config in configs.items():
        said = (tmp_path / f"{name}.0.txt").read_text()
        assert "2 epochs done" in said
        assert "on cpu, 2 processes" in said
        assert (tmp_path / f"{name}.1.txt").read_text() == ""  # one of them speaks for both
        check_same(tmp_path / "one" / name, tmp_path / name)
        with refused():
            tiny.run(tmp_path / name, config, resume=True, text=text)


def check_same(alone: Path, together: Path) -> None:
    """Weights, state, optimizer and metrics of one process and of two."""
    one, two = (tensors(run, "model.safetensors") for run in (alone, together))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=2e-6, rtol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    one, two = (tensors(run, "training.safetensors") for run in (alone, together))
    assert two.keys() - one.keys() == {"random.cpu.1", "window.1", "epoch.1"}
    assert two["state.h.0"].shape == (16, 6)
    for name, value in one.items():
        if name.startswith(("state", "optimizer", "average")):
            torch.testing.assert_close(two[name], value, atol=5e-6, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    lines = [read_metrics(run / "metrics.jsonl") for run in (alone, together)]
    assert len(lines[0]) == len(lines[1])
    assert "detector" in {line["event"] for line in lines[0]}
    for ours, theirs in zip(*lines):
        assert (ours["event"], ours["step"]) == (theirs["event"], theirs["step"])
        if ours["event"] == "detector":
            assert (ours["layer"], ours["condition"]) == (theirs["layer"], theirs["condition"]) == (2, "always")
            continue
        assert theirs["bits"] == pytest.approx(ours["bits"], abs=1e-5)
        assert theirs["rates"] == pytest.approx(ours["rates"], abs=1e-6)


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

    monkeypatch.setattr("hmrnn.pretrained.train.Trainer", Watched)
    monkeypatch.setenv("RANK", "0")
    for name, stand_in in (
        ("init_process_group", lambda backend: None),
        ("get_rank", lambda: 0),
        ("get_world_size", lambda: 1),
        ("destroy_process_group", destroy),
    ):
        monkeypatch.setattr(dist, name, stand_in)
    monkeypatch.setattr(Text, "load", lambda kind, config, progress=None: tiny.corpus())
    gc.disable()
    try:
        assert commands.run_to_end(tiny.config(epochs=1), RunDirectory(tmp_path / "run"), report=False, again="") == 0
    finally:
        gc.enable()
    assert len(alive) == len(ended) == 1
