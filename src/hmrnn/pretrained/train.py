"""train(...): carry out a run, from its settings to the trained model."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from hmrnn import checkpoint, kind
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.config.checks import settings_of, value_of
from hmrnn.errors import InputError, Note
from hmrnn.kind import Measure
from hmrnn.pretrained.export import check_new
from hmrnn.pretrained.load import load, locate
from hmrnn.training.loop import train as training
from hmrnn.training.processes import processes
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils import files
from hmrnn.utils.devices import choose_device

CHANGEABLE = {
    "data.path", "data.cache", "data.condition", "train.epochs", "train.patience", "train.divisions", "train.log_every",
    "train.checkpoint_every", "train.device", "train.threads", "train.engine", "train.skip_nonfinite",
}  # fmt: skip
"""The settings that a resumed run may change: the updates already made do not depend on them, apart from schedules over
train.epochs, of which a note tells."""
Events = Iterator[dict[str, Any]]
CALLBACKS = {"train": "on_step", "valid": "on_validation", "end": "on_end"}


def train(
    run: Config | str | Path,
    *,
    data: Iterable[Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[dict[str, Any]], None] | None = None,
    start: Checkpoint | None = None,
    callbacks: Iterable[object] = (),
) -> Any:
    """Train a model, as ``hmrnn train`` does, and return it.

    Args:
        run: the settings, or what ``hmrnn train`` takes: a preset, data, or the file of a run.
        data: texts in place of files: a column of pandas or polars, a list, a generator, or rows with a ``"text"``, as
            ``datasets`` gives them. They are written to a file one by one, with a line end after each, and need not fit
            in memory; the file is ``out`` with .txt, or gone after training.
        out: the directory of the run, which ``hmrnn train --resume`` can continue. None: nothing is kept but the model
            that is returned.
        resume: continue the run in ``out`` where it stopped.
        overwrite: replace the run in ``out``.
        progress: called with each line of metrics, such as ``print``.
        start: the model that train.start_from names, if it is not to be read from there.
        callbacks: objects whose methods, if they have them, are called: ``on_start`` with the trainer; ``on_step`` and
            ``on_validation`` with the lines of metrics after every ``train.log_every`` steps and after a validation;
            ``on_end`` with the last event, which says why training ended. Under torchrun in every process.

    Example::

        >>> run = hmrnn.Config.load("book.txt").changed({"train.epochs": 2})  # doctest: +SKIP
        >>> model = hmrnn.train(run, out="runs/book", progress=print)  # doctest: +SKIP
        >>> model = hmrnn.train("lines", data=frame["name"])  # doctest: +SKIP
    """

    def follow(events: Events, trainer: Trainer) -> dict[str, Any]:
        for event in events:
            if progress is not None and event["event"] in ("train", "valid", "detector"):
                progress(event)
        return event

    config = run if isinstance(run, Config) else Config.load(run)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "run") if out is None else Path(os.path.expanduser(out))
        directory = RunDirectory(place)
        if data is not None:
            directory.check(resume=resume, overwrite=overwrite)
            text = place.with_name(f"{place.name}.txt")
            spooled = files.spool(data, text if overwrite else check_new(text))
            config = replaced(config, {"data.path": (str(spooled),)})
        end, *_ = carry_out(
            config, directory, follow, resume=resume, overwrite=overwrite, start=start, callbacks=callbacks
        )
        if end["signal"] is not None:
            raise KeyboardInterrupt(end["reason"])
        model = load(directory.path, device=choose_device(config.train.device))
    model.source = None if out is None else str(out)
    return model


def carry_out(
    config: Config,
    run: RunDirectory,
    follow: Callable[[Events, Trainer], dict[str, Any]],
    *,
    resume: bool = False,
    overwrite: bool = False,
    start: Checkpoint | None = None,
    reading: Any = None,
    callbacks: Iterable[object] = (),
) -> tuple[dict[str, Any], Any, Measure]:
    """Train in a directory while ``follow`` takes the events; the last event, the corpus and what was measured.

    ``reading`` is told how much of the data is read.
    """
    config.check()
    run.check(resume=resume, overwrite=overwrite)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    device, reads = choose_device(config.train.device), kind.of(config)
    with processes(device) as (rank, world):
        if rank > 0:  # the first process fills the cache
            torch.distributed.barrier()
        corpus = reads.load(config, reading)
        if rank == 0 and world > 1:
            torch.distributed.barrier()
        run.writer = rank == 0
        config = reads.settle(config, corpus)
        if resume:
            _check_resumable(run.config(), config)
            if rank == 0:
                _note_schedules(run.config(), config)
        if start is None and config.train.start_from is not None and not resume:
            start = checkpoint.read(locate(config.train.start_from))
        trainer = Trainer(config, corpus, device, rank, world, start)
        with run.open(overwrite=overwrite):
            events = _told(training(trainer, run, resume=resume), trainer, list(callbacks))
            end, measure = follow(events, trainer), trainer.measure
        del trainer, events  # before the process group: if DDP held it last, gloo's threads could hang
    return end, corpus, measure


def _told(events: Events, trainer: Trainer, callbacks: list[Any]) -> Events:
    """The events of a run, of which callbacks are told."""

    def ignore(event: Any) -> None: ...

    for each in callbacks:
        getattr(each, "on_start", ignore)(trainer)
    for event in events:
        for each in callbacks:
            getattr(each, CALLBACKS.get(event["event"], ""), ignore)(event)
        yield event


def _note_schedules(stored: Config, wanted: Config) -> None:
    """Tell of schedules that jump because a resumed run has another number of epochs than it had."""
    t, d = wanted.train, wanted.detectors
    moving = {
        "the learning rate (train.cool_down)": t.cool_down > 0,
        "the temperature (detectors.temperature)": d.estimator == "gumbel" and len(set(d.temperature)) > 1,
        "the share of own inputs (train.scheduled_sampling)": len(set(t.scheduled_sampling)) > 1,
    }
    names = " and ".join(name for name, moves in moving.items() if moves)
    if names and t.epochs != stored.train.epochs:
        warnings.warn(
            f"the schedule of {names} now goes over {t.epochs} epochs instead of {stored.train.epochs}, and jumps "
            f"here: the result is not that of a run of {t.epochs} epochs",
            Note,
            stacklevel=4,
        )


def _check_resumable(stored: Config, wanted: Config) -> None:
    """Raise InputError if a setting differs that a resumed run cannot change."""
    for name, _, _, value, *_ in settings_of(Config, stored):
        if name not in CHANGEABLE and value_of(wanted, name) != value:
            raise InputError("a resumed run keeps its settings; leave it out", setting=name)
