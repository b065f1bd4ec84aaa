"""Killed, out of disk, robbed of its directory: a run says what is wrong, and what it has saved is whole."""

from __future__ import annotations

import errno
import functools
import math
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hmrnn
import kills
import tiny
from hmrnn.training.finite import Diverged
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from refusals import refused

FREQUENT: dict[str, Any] = {
    "epochs": 2,
    "validate_every": 4,
    "checkpoint_every": 0.0,
    "estimator": "sample",
    "log_every": 2,
}


def test_kills_change_nothing(tmp_path: Path) -> None:
    """SIGKILL before the first update and within it, while a checkpoint is written and while it is evaluated."""
    config, text, rng = tiny.config(**FREQUENT), tiny.corpus(), random.Random(1)
    tiny.run(tmp_path / "whole", config, text=text)
    seen = []
    for moment in (kills.FIRST, kills.BEGINNING, kills.WRITING, kills.EVALUATION, None):
        finished, was_at = kills.sitting(tmp_path / "parts", config, text, rng, moment)
        seen.append(was_at)
        if finished:  # also where a busy machine lets the run end before the kill
            break
    assert finished
    assert seen[0] == kills.PHASES[kills.FIRST]
    assert kills.final(tmp_path / "parts") == kills.final(tmp_path / "whole"), seen


def test_the_lock_of_a_dead_process_is_not_in_the_way(tmp_path: Path) -> None:
    here = RunDirectory(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with here.open():
            os.write(writing, b"!")
            time.sleep(600)
        os._exit(0)
    assert os.read(reading, 1) == b"!"
    with refused(), here.open():
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "lock").exists()
    with here.open():
        pass


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """A function that lets no file grow beyond a size from now on, as on a disk that is full; again at the end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


SHORT = tiny.config(epochs=1, validate_every=5)


def interrupted_by(directory: Path, act: Callable[[], object]) -> None:
    """Train; after step 6, one after a checkpoint, ``act`` is done, and the run must end."""

    def meddle(event: tiny.Event) -> bool:
        if event["event"] == "step" and event["step"] == 6:
            act()
        return False

    with refused() as info:
        tiny.run(directory, SHORT, stop=meddle)
    assert str(directory) in str(info.value)


@functools.cache
def undisturbed() -> dict[str, bytes | list[tiny.Event]]:
    """What a run leaves to which nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        tiny.run(Path(folder), SHORT)
        return tiny.contents(Path(folder))


def goes_on(directory: Path) -> None:
    """The last checkpoint can be used and gone on from, and the end is that of a run to which nothing happened."""
    assert hmrnn.load(directory).score("abc de").symbols == 5
    tiny.run(directory, SHORT, resume=True)
    assert tiny.contents(directory) == undisturbed()


@pytest.mark.parametrize("what", ["a checkpoint", "metrics.jsonl"])
def test_a_full_disk(tmp_path: Path, full_disk: Callable[[int], None], what: str) -> None:
    run = tmp_path / "run"
    room = {"a checkpoint": lambda: 2000, "metrics.jsonl": lambda: (run / "metrics.jsonl").stat().st_size + 10}[what]
    interrupted_by(run, lambda: full_disk(room()))
    full_disk(resource.RLIM_INFINITY)
    assert list(run.glob(".*")) == []  # nothing unfinished takes up the place
    goes_on(run)


def test_a_directory_that_is_moved_or_removed_meanwhile(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    interrupted_by(run, lambda: run.rename(elsewhere))
    assert not run.exists()
    goes_on(elsewhere)
    interrupted_by(run, lambda: shutil.rmtree(run))
    assert not run.exists()


def test_a_directory_with_another_in_its_place(tmp_path: Path) -> None:
    """Another run may have begun there: nothing is written to it."""
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def replace() -> None:
        run.rename(elsewhere)
        run.mkdir()
        (run / "lock").touch()

    interrupted_by(run, replace)
    assert [path.name for path in run.iterdir()] == ["lock"]
    goes_on(elsewhere)


def test_a_lock_that_is_removed_meanwhile_does_not_end_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    end = tiny.run(run, SHORT, stop=lambda event: bool((run / "lock").unlink(missing_ok=True)))
    assert end["reason"] == "1 epoch done"


def test_a_loss_that_is_not_finite_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    """The message does not promise a checkpoint there."""
    here, trainer = RunDirectory(tmp_path / "run"), tiny.trainer(tiny.config())
    with here.open():
        events = train(trainer, here)
        next(events)
        here.path.rename(tmp_path / "elsewhere")
        with torch.no_grad():
            trainer.model.softmax.weight.fill_(math.nan)
        with refused(kind=Diverged) as info:
            list(events)
    assert str(tmp_path) not in str(info.value)


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("a checkpoint", errno.EROFS),
        ("a checkpoint", errno.ENOENT),
        ("metrics.jsonl", errno.EIO),
        ("metrics.jsonl", errno.ENOENT),
    ],
)
def test_errors_of_the_disk(tmp_path: Path, what: str, number: int) -> None:
    """Each ends the run with one line, and the run can be resumed when the disk is well again."""
    run = tmp_path / "run"

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        target = {"a checkpoint": "hmrnn.checkpoint.os.rename", "metrics.jsonl": "hmrnn.training.rundir.os.fsync"}[what]
        interrupted_by(run, lambda: patch.setattr(target, fail))
    goes_on(run)
