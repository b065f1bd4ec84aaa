"""The progress of a training: a bar on a terminal, a line per report elsewhere."""

from __future__ import annotations

import collections
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hmrnn import kind
from hmrnn.cli.display import show_progress
from hmrnn.cli.terminal import say, warn
from hmrnn.errors import InputError
from hmrnn.kind import Measure
from hmrnn.nn.predictor import MANY, shown_sizes
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.signals import discard_stdout


def follow(events: Iterator[dict[str, Any]], trainer: Trainer, run: RunDirectory, *, quiet: bool) -> dict[str, Any]:
    """Run a training to its end and show its events, unless ``quiet``; the last event."""
    if quiet:
        return collections.deque(events, maxlen=1).pop()
    try:
        say(_headline(trainer, run))
    except OSError as error:
        discard_stdout()
        raise InputError(f"the output cannot be written ({error.strerror}), so training does not start") from error
    tell, advance = _printer(), show_progress("training")
    (unit, per), wrong = trainer.measure, kind.of(trainer.config).error
    total = trainer.config.train.epochs * trainer.task.chunks
    before, state, event = trainer.progress.step, "", dict[str, Any]()
    for event in events:
        match event["event"]:
            case "step":
                advance(event["step"], total, state)
            case "train":
                state = _state(event, trainer.measure, trainer.task.reads.unit)
                if not (sys.stderr.isatty() and sys.stdout.isatty()):
                    tell(f"epoch {event['epoch']:.2f}  step {event['step']} of {total}  {state}")
            case "valid":
                mark = "  (best so far)" if event["best"] else ""
                share = f", {event['error']:.1%} {wrong}" if "error" in event else ""
                tell(
                    f"epoch {event['epoch']:.2f}  validation {event[unit]:.4f} {unit} per {per}{share}, "
                    f"boundary rates {_rates(event['rates'])}, learning rate {event['learning_rate']:g}{mark}"
                )
            case "detector":
                tell(f"epoch {event['epoch']:.2f}  {event['message']}")
    if event["signal"] is None:
        p = trainer.progress
        limits = "--train.epochs" if p.epoch >= trainer.config.train.epochs else "--train.divisions"
        more = "" if event["step"] > before else f"; to train further, raise {limits}"
        skipped = f"; {p.skipped} updates were not finite and skipped" if p.skipped else ""
        best = f"best validation {p.best:.4f} {unit} per {per} at step {p.best_step}, in {run.path}"
        say(f"{event['reason']}; {best}{more}{skipped}")
    return event


def _printer() -> Callable[[str], None]:
    """A function that prints a line. If that fails (| head, a full disk) it stops the run, which saves it first."""
    failed = False

    def tell(text: str) -> None:
        nonlocal failed
        try:
            if not failed:
                say(text)
        except OSError as error:
            failed = True
            discard_stdout()
            warn(f"hmrnn: the output cannot be written ({error.strerror}), so training stops")
            signal.raise_signal(signal.SIGTERM)

    return tell


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
