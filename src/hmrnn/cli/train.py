"""``hmrnn train``: run or resume a training, show its progress, and write a report at its end."""

from __future__ import annotations

import dataclasses
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from hmrnn import checkpoint, kind
from hmrnn.cli import display, progress
from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.report import write as write_report
from hmrnn.cli.terminal import warn
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.pretrained.load import locate
from hmrnn.training.loop import train as run_training
from hmrnn.training.metrics import read_metrics
from hmrnn.training.processes import processes
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import choose_device

T = TypeVar("T")
CHANGEABLE = {
    "data.path", "data.cache", "data.condition", "train.epochs", "train.patience", "train.divisions", "train.log_every",
    "train.checkpoint_every", "train.device", "train.threads", "train.engine", "train.skip_nonfinite",
}  # fmt: skip
"""The settings that --resume may change: the updates already made do not depend on them, apart from schedules over
train.epochs, of which a note tells."""


def run(arguments: TrainArguments) -> int:
    run = RunDirectory(Path(str(arguments.out)))
    again = f"hmrnn train {shlex.quote(arguments.target)} --out {shlex.quote(str(run.path))} --resume"
    return run_to_end(
        arguments.config, run, resume=arguments.resume, overwrite=arguments.overwrite, report=arguments.report,
        again=again, hint=True,
    )  # fmt: skip


def run_to_end(
    config: Config,
    run: RunDirectory,
    *,
    again: str,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
    hint: bool = False,
) -> int:
    """Train, show the progress and write the report; exit status. ``again`` is the command that resumes the run.

    With ``hint`` a command is shown that uses the model.
    """
    config.check()
    run.check(resume=resume, overwrite=overwrite)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    device, reads = choose_device(config.train.device), kind.of(config)
    with processes(device) as (rank, world):
        corpus = _first_of_all(rank, world, lambda: reads.load(config, display.show_progress("reading")))
        run.writer = rank == 0
        config = reads.settle(config, corpus)
        if resume:
            _check_resumable(run.config(), config)
        if resume and rank == 0:
            _note_schedules(run.config(), config)
        source = config.train.start_from
        start = None if source is None or resume else checkpoint.read(locate(source))
        trainer = Trainer(config, corpus, device, rank, world, start)
        unit, per = trainer.measure
        with run.open(overwrite=overwrite):
            events = run_training(trainer, run, resume=resume)
            end = progress.follow(events, trainer, run, quiet=rank > 0)
        del trainer, events  # before the process group: if DDP held it last, gloo's threads could hang
    if end["signal"] is not None:
        if rank == 0:
            print(f"stopped by {end['signal']} at step {end['step']}; everything is saved. Resume with:\n  {again}")
        return 128 + signal.Signals[end["signal"]]
    if rank == 0:
        metrics = read_metrics(run.path / "metrics.jsonl")
        if source is not None:
            _print_change(source, metrics, unit, per)
        if report:
            print(f"report: {write_report(run.path, metrics, corpus)}")
        if hint:
            print(f"try: hmrnn {reads.commands(display.show_progress).next(run.config(), run.path, corpus)}")
    return 0


def _print_change(source: str, metrics: Sequence[dict[str, Any]], unit: str, per: str) -> None:
    """Print the validations before and after fine-tuning, unless the lines of the first are lost."""
    found = {line["step"]: line[unit] for line in metrics if line["event"] == "valid"}
    if 0 in found:
        print(f"validation part, {unit} per {per}: {found[0]:.4f} by {source}, {min(found.values()):.4f} fine-tuned")


def _first_of_all(rank: int, world: int, read: Callable[[], T]) -> T:
    """Let the first process of a group fill the cache before the others read it."""
    if rank > 0:
        torch.distributed.barrier()
    result = read()
    if rank == 0 and world > 1:
        torch.distributed.barrier()
    return result


def _note_schedules(stored: Config, wanted: Config) -> None:
    """Tell of schedules that jump because a resumed run has another number of epochs than it had."""
    t, d = wanted.train, wanted.detectors
    moving = {
        "the learning rate (--train.cool-down)": t.cool_down > 0,
        "the temperature (--detectors.temperature)": d.estimator == "gumbel" and len(set(d.temperature)) > 1,
        "the share of own inputs (--train.scheduled-sampling)": len(set(t.scheduled_sampling)) > 1,
    }
    names = " and ".join(name for name, moves in moving.items() if moves)
    if names and t.epochs != stored.train.epochs:
        warn(
            f"hmrnn: note: the schedule of {names} now goes over {t.epochs} epochs instead of {stored.train.epochs}, "
            f"and jumps here: the result is not that of a run of {t.epochs} epochs"
        )


def _check_resumable(stored: Config, wanted: Config) -> None:
    """Raise InputError if a setting differs that a resumed run cannot change."""
    old, new = dataclasses.asdict(stored), dataclasses.asdict(wanted)
    differing = [
        f"{part}.{name}"
        for part, settings in old.items()
        for name, value in settings.items()
        if value != new[part][name] and f"{part}.{name}" not in CHANGEABLE
    ]
    if differing:
        raise InputError("a resumed run keeps its settings; leave it out", setting=differing[0])
