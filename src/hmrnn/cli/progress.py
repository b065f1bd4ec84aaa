"""The progress of a training: a bar on a terminal, a line per report elsewhere."""

from __future__ import annotations

import collections
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hmrnn import kind
from hmrnn.cli.display import EVERY, FIRST, duration
from hmrnn.cli.terminal import escaped
from hmrnn.errors import InputError
from hmrnn.kind import Measure
from hmrnn.nn.predictor import MANY, shown_sizes
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.signals import discard_stdout

TOLD = 4
"""Detectors of an epoch that are told of one by one."""


def follow(events: Iterator[dict[str, Any]], trainer: Trainer, run: RunDirectory, *, quiet: bool) -> dict[str, Any]:
    """Run a training to its end and show its events, unless ``quiet``; the last event."""
    if quiet:
        return collections.deque(events, maxlen=1).pop()
    console = _Console(highlight=False, markup=False)
    try:
        console.print(escaped(_headline(trainer, run), keep="\n"), soft_wrap=True)
    except OSError as error:
        discard_stdout()
        raise InputError(f"the output cannot be written ({error.strerror}), so training does not start") from error
    show = _printer(console)
    (unit, per), wrong = trainer.measure, kind.of(trainer.config).error
    symbol = trainer.task.reads.unit
    total = trainer.config.train.epochs * trainer.task.chunks

    def left(step: int) -> str:
        """The number of steps, and the time left; the first step is not counted, as it takes longer than the others."""
        if step <= first:
            return f" of {total}"
        return f" of {total}, {duration((monotonic() - began) / (step - first) * max(total - step, 0))} left"

    columns = (
        TextColumn("epoch {task.fields[epoch]:.2f}"), BarColumn(), MofNCompleteColumn(), TextColumn("updates,"),
        TimeRemainingColumn(), TextColumn("left  {task.fields[state]}"),
    )  # fmt: skip
    event: dict[str, Any] = {}
    told = 0  # detectors in a row
    began, first, due = monotonic(), trainer.progress.step + 1, monotonic() + FIRST
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total, epoch=0.0, state="")
        for event in events:
            if event["event"] != "detector" and told > TOLD:
                show(f"and {told - TOLD} detectors more, which {run.path}/metrics.jsonl names", "yellow")
            told = told + 1 if event["event"] == "detector" else 0
            if event["event"] == "step":
                began = monotonic() if event["step"] <= first else began
                progress.update(bar, completed=event["step"], epoch=event["epoch"])
                if not console.is_terminal and monotonic() >= due:
                    due = monotonic() + EVERY
                    show(f"epoch {event['epoch']:.2f}  step {event['step']}{left(event['step'])}")
            elif event["event"] == "train":
                state = _state(event, trainer.measure, symbol)
                progress.update(bar, state=state)
                if not console.is_terminal:
                    due = monotonic() + EVERY
                    show(f"epoch {event['epoch']:.2f}  step {event['step']}{left(event['step'])}  {state}")
            elif event["event"] == "valid":
                mark = "  (best so far)" if event["best"] else ""
                share = f", {event['error']:.1%} {wrong}" if "error" in event else ""
                show(
                    f"epoch {event['epoch']:.2f}  validation {event[unit]:.4f} {unit} per {per}{share}, "
                    f"boundary rates {_rates(event['rates'])}, learning rate {event['learning_rate']:g}{mark}"
                )
            elif event["event"] == "detector" and told <= TOLD:
                style = "green" if event["condition"] == "alive" else "yellow"
                show(f"epoch {event['epoch']:.2f}  {event['message']}", style)
    if event["signal"] is None:
        best = trainer.progress.best
        limits = "--train.epochs" if trainer.progress.epoch >= trainer.config.train.epochs else "--train.divisions"
        more = "" if event["step"] >= first else f"; to train further, raise {limits}"
        show(
            f"{event['reason']}; best validation {best:.4f} {unit} per {per} at step "
            f"{trainer.progress.best_step}, in {run.path}{more}"
            + (f"; {trainer.progress.skipped} updates were not finite and skipped" if trainer.progress.skipped else ""),
            running=False,
        )
    return event


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise, where Rich would end the process silently."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _printer(console: Console) -> Callable[..., None]:
    """A function that prints a line. If that fails (| head, a full disk) it stops the run, which saves it first."""
    failed = False

    def show(text: str, style: str | None = None, running: bool = True) -> None:
        nonlocal failed
        if failed:
            return
        try:
            console.print(escaped(text), style=style, soft_wrap=True)
        except OSError as error:
            failed = True
            discard_stdout()
            if running:
                print(f"hmrnn: the output cannot be written ({error.strerror}), so training stops", file=sys.stderr)
                signal.raise_signal(signal.SIGTERM)

    return show


def _headline(trainer: Trainer, run: RunDirectory) -> str:
    parameters = sum(p.numel() for p in trainer.model.parameters())
    sizes = shown_sizes(trainer.model.rnn.hidden_sizes)
    processes = f", {trainer.world} processes" if trainer.world > 1 else ""
    return (
        f"{trainer.task.describe()}\n"
        f"model: layers of {sizes}; {parameters:,} parameters; engine {trainer.engine} on {trainer.device}{processes}\n"
        f"run: {run.path}"
    )


def _state(event: dict[str, Any], measure: Measure, symbol: str) -> str:
    per, symbols = (name.replace("character", "char") for name in (measure.per, f"{symbol}s"))
    speed = f"{event['symbols_per_second']:,} {symbols}/s"
    skipped = f", {event['skipped']} updates skipped" if event.get("skipped") else ""
    return f"{event[measure.unit]:.3f} {measure.unit}/{per}, {speed}, boundary rates {_rates(event['rates'])}{skipped}"


def _rates(rates: list[float] | tuple[float, ...]) -> str:
    shown = [f"z{l}={rate:.3f}" for l, rate in enumerate(rates, start=1)]
    return " ".join(shown if len(shown) < MANY else [*shown[:2], "...", shown[-1]]) or "none"
