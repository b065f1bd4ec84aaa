"""Training that is killed, damaged and left to run for long."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from recorded import Record

import damage
import kills
import tiny
from hmrnn.training.loop import train
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer

SEED = 7


def test_thirty_kills(record: Record, tmp_path: Path) -> None:
    """SIGKILL at 30 random moments, each time resumed: weights, optimizer, state and metrics as if nothing had been."""
    config = tiny.config(
        estimator="sample", epochs=40, validate_every=6, checkpoint_every=0.0, log_every=3, average=0.9
    )
    text, rng = tiny.corpus(), random.Random(SEED)
    tiny.run(tmp_path / "whole", config, text=text)
    moments = [kills.BEGINNING, kills.FIRST, *(rng.choice(range(kills.FIRST)) for _ in range(28))]
    seen: dict[str, int] = {}
    for number, moment in enumerate(moments):
        finished, was_at = kills.sitting(tmp_path / "parts", config, text, rng, moment)
        assert not finished
        seen[was_at] = seen.get(was_at, 0) + 1
        steps = [path.name for path in tmp_path.glob("parts/last-*")]
        record.say(f"kill {number + 1}: at {was_at}, then there are {', '.join(sorted(steps)) or 'no checkpoints'}")
    assert kills.sitting(tmp_path / "parts", config, text, rng, None) == (True, "its end")
    whole, parts = kills.final(tmp_path / "whole"), kills.final(tmp_path / "parts")
    record["kills"], record["killed during"], record["seed"] = len(moments), seen, SEED
    record["lines of metrics"] = len(whole["metrics"])
    record["bytes compared"] = sum(len(value) for value in whole.values() if isinstance(value, bytes))
    assert whole == parts
    assert {"an evaluation", "the writing of a checkpoint", "before the first update", "a first batch"} <= seen.keys()


def two_processes(work: Path, *arguments: object) -> subprocess.Popen[str]:
    """A command of hmrnn under torchrun, with ``work`` as its working directory."""
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hmrnn")
    command, pipe = [sys.executable, *run, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(
        command, cwd=work, env=tiny.environment(work / "cache"), stdout=pipe, stderr=pipe, text=True
    )


def workers(process: int) -> list[int]:
    """The processes that torchrun has started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_killed_worker_of_torchrun(record: Record, tmp_path: Path) -> None:
    """Two processes under torchrun, one of them killed three times: the end is that of a run that was not disturbed."""
    (tmp_path / "story.txt").write_text(tiny.text(900))
    config = tiny.config(batch_size=16, length=10, log_every=3, epochs=300, validate_every=25, checkpoint_every=0.3)
    rng, flags = random.Random(SEED), tiny.flags(config)
    process = two_processes(tmp_path, "train", "story.txt", "--out", "whole", *flags)
    assert process.wait(timeout=600) == 0
    for kill in range(3):
        how = ["--resume"] if kill else flags
        process = two_processes(tmp_path, "train", "story.txt", "--out", "parts", *how)
        assert process.stdout is not None
        while "bits/char" not in (line := process.stdout.readline()):
            assert line, process.communicate()[1]
        time.sleep(rng.uniform(0.5, 2.0))
        victim = rng.choice(workers(process.pid))
        os.kill(victim, signal.SIGKILL)
        process.communicate(timeout=120)
        step = RunDirectory(tmp_path / "parts").newest_progress()["step"]
        record.say(f"worker killed, torchrun ended with {process.returncode}; the last checkpoint is at step {step}")
        assert process.returncode != 0
    process = two_processes(tmp_path, "train", "story.txt", "--out", "parts", "--resume")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    record["kills"], record["seed"] = 3, SEED
    whole, parts = kills.final(tmp_path / "whole"), kills.final(tmp_path / "parts")
    record["lines of metrics"] = len(whole["metrics"])
    assert whole == parts


@pytest.mark.parametrize("kind", damage.KINDS)
def test_thousand_corruptions(record: Record, tmp_path: Path, kind: str) -> None:
    """One byte changed or a file cut short, 1,000 times: noticed each time, and the newest whole checkpoint offered."""
    run, rng = damage.make_run(tmp_path / "run", kind), random.Random(SEED)
    for _ in range(1000):
        damage.corrupt(rng, run)
    record["corruptions"], record["loaded silently"], record["seed"] = 1000, 0, SEED


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_fifty_thousand_steps(record: Record, tmp_path: Path, device: str) -> None:
    """A long run in small: 50,000 updates with validations and checkpoints; memory stays flat, also of a GPU."""
    config = tiny.config(
        epochs=50, length=2, batch_size=2, num_layers=2, hidden_size=(4,), log_every=200, validate_every=1000,
        checkpoint_every=5.0, patience=10**6,
    )  # fmt: skip
    trainer, here = Trainer(config, tiny.corpus(train=4001), torch.device(device)), RunDirectory(tmp_path)
    assert (trainer.captured is not None) == (device == "cuda")
    held: dict[str, list[float]] = {"resident memory": [], "allocated on the GPU": []}
    with here.open():
        for event in train(trainer, here):
            if event["event"] == "step" and event["step"] % 1000 == 0:
                held["resident memory"].append(rss())
                if device == "cuda":
                    held["allocated on the GPU"].append(torch.cuda.memory_allocated() / 2**20)
    assert trainer.progress.step == 50_000
    record["updates"], record["seed"] = 50_000, config.train.seed
    record["lines of metrics"] = len(read_metrics(tmp_path / "metrics.jsonl"))
    for (name, sizes), growth in zip(held.items(), (20, 1)):
        if sizes:
            first, last = sizes[5], max(sizes[-5:])
            record[f"{name} after 10 %, MB"], record[f"{name} at the end, MB"] = round(first, 3), round(last, 3)
            assert last < first + growth


def rss() -> float:
    """Resident memory of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
