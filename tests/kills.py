"""Runs that are killed, by SIGKILL and at moments of one's choice, in a process of their own."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny
from hmrnn import checkpoint
from hmrnn.config import Config
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.task import TextTask
from hmrnn.training.trainer import Trainer

BEGINNING, UPDATE, EVALUATION, WRITING, BETWEEN, FIRST = range(6)
PHASES = (
    "before the first update",
    "an update",
    "an evaluation",
    "the writing of a checkpoint",
    "between",
    "a first batch",
)


def sitting(directory: Path, config: Config, text: Corpus, rng: random.Random, moment: int | None) -> tuple[bool, str]:
    """Go on with a run in a process of its own, which is killed at a random instant of a phase, the rng's choice.

    ``moment`` None lets it run to its end; FIRST is no random instant: a first batch has been read and nothing has been
    learnt from it. Gives whether it came to its end, and what it was at when it was killed.
    """
    phase = mmap.mmap(-1, 2)  # shared: what the process is at, and how often it was at the moment that is waited for
    resume = any("last" in path.name for path in checkpoint.checkpoints(directory)) if directory.exists() else False
    child = os.fork()
    if child == 0:
        _live(phase, directory, config, text, resume, -1 if moment is None else moment)
    times = rng.choice((1, 1, 2, 3)) if moment not in (None, BEGINNING) else 1
    delay = rng.choice((0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.02)))
    killed = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if not killed and moment is not None and phase[1] >= times:
            time.sleep(delay)
            was_at = PHASES[phase[0]]
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(0.0002)
    if os.WIFSIGNALED(status) and killed:
        return False, was_at
    if moment == FIRST and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False, PHASES[FIRST]
    assert os.WIFEXITED(status), status
    assert os.WEXITSTATUS(status) == 0, "the run failed"
    return True, "its end"


def _live(phase: mmap.mmap, directory: Path, config: Config, text: Corpus, resume: bool, moment: int) -> None:
    """What the process does; it never returns."""

    def enter(number: int) -> int:
        before = phase[0]
        phase[0] = number
        if number == moment:
            phase[1] = min(255, phase[1] + 1)
        return before

    def noting(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            before = enter(number)
            try:
                return function(*arguments, **named)
            finally:
                phase[0] = before

        return noted

    status = 1
    try:
        enter(BEGINNING)
        Trainer.update = noting(UPDATE, Trainer.update)  # type: ignore[method-assign]
        TextTask.validate = noting(EVALUATION, TextTask.validate)  # type: ignore[method-assign]
        checkpoint.write = noting(WRITING, checkpoint.write)
        if moment == FIRST:
            loss = TextTask.loss

            def loss_and_die(*arguments: Any) -> Any:
                loss(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)

            TextTask.loss = loss_and_die  # type: ignore[method-assign]

        def step(event: tiny.Event) -> bool:
            enter(BETWEEN)
            return False

        if not resume and (directory / "config.json").exists():
            with tiny.RunDirectory(directory).open(overwrite=True):
                (directory / "config.json").unlink()
        tiny.run(directory, config, text=text, resume=resume, stop=step)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def final(directory: Path) -> dict[str, bytes | list[tiny.Event]]:
    """The newest checkpoint of each kind and the metrics: what must not depend on interruptions."""
    names = {checkpoint.find(directory, kind).name for kind in ("best", "last")}
    contents = tiny.contents(directory)
    return {name: value for name, value in contents.items() if name == "metrics" or name.split("/")[0] in names}
