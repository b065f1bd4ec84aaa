"""What commands show: progress, tables and coloured segments, on a terminal or plain when piped."""

from __future__ import annotations

import collections
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.data.text.corpus import Corpus
from hmrnn.errors import InputError
from hmrnn.inference.evaluate import Evaluation
from hmrnn.tasks.base import Task
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.signals import let_go_of_output

LONG = 20_000
"""Symbols that take long enough, read one after the other, to point out what is faster."""


def follow(events: Iterator[dict[str, Any]], trainer: Trainer, run: RunDirectory, *, quiet: bool) -> dict[str, Any]:
    """Run a training to its end and show it: a bar on a terminal, a line per report elsewhere. The last event."""
    if quiet:
        return _last(events)
    console = _Console(highlight=False, markup=False)
    try:
        console.print(_headline(trainer, run), soft_wrap=True)
    except OSError as error:
        let_go_of_output()
        raise InputError(f"the output cannot be written ({error.strerror}), so training does not begin") from error
    show = _saying(console)
    task = trainer.task
    total = trainer.config.train.epochs * trainer.task.chunks
    columns = (
        TextColumn("epoch {task.fields[epoch]:.2f}"), BarColumn(), MofNCompleteColumn(), TextColumn("updates,"),
        TimeRemainingColumn(), TextColumn("left  {task.fields[state]}"),
    )  # fmt: skip
    event: dict[str, Any] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total, epoch=0.0, state="")
        for event in events:
            if event["event"] == "step":
                progress.update(bar, completed=event["step"], epoch=event["epoch"])
            elif event["event"] == "train":
                state = _state(event, task)
                progress.update(bar, state=state)
                if not console.is_terminal:
                    show(f"epoch {event['epoch']:.2f}  step {event['step']}  {state}")
            elif event["event"] == "valid":
                mark = "  (best so far)" if event["best"] else ""
                show(
                    f"epoch {event['epoch']:.2f}  validation {event[task.unit]:.4f} {task.unit} per {task.per}, "
                    f"boundary rates {_rates(event['rates'])}, rate {event['learning_rate']:g}{mark}"
                )
            elif event["event"] == "detector":
                style = "green" if event["condition"] == "alive" else "yellow"
                show(f"epoch {event['epoch']:.2f}  {event['message']}", style)
    if event["signal"] is None:
        best = trainer.progress.best
        show(
            f"done: {event['reason']}; best validation {best:.4f} {task.unit} per {task.per} at step "
            f"{trainer.progress.best_step}, in {run.path}"
            + (f"; {trainer.progress.skipped} updates were not finite and skipped" if trainer.progress.skipped else ""),
            running=False,
        )
    return event


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process without a word."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _saying(console: Console) -> Callable[..., None]:
    """A function that prints a line. Once that fails (| head, a full disk) the run is asked to stop, which saves it."""
    gone = False

    def show(text: str, style: str | None = None, running: bool = True) -> None:
        nonlocal gone
        if gone:
            return
        try:
            console.print(text, style=style, soft_wrap=True)
        except OSError as error:
            gone = True
            let_go_of_output()
            if running:
                print(f"hmrnn: the output cannot be written ({error.strerror}), so training stops", file=sys.stderr)
                signal.raise_signal(signal.SIGTERM)

    return show


def _last(events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The last of them, without keeping the others: a run has one for every update."""
    return collections.deque(events, maxlen=1).pop()


def _headline(trainer: Trainer, run: RunDirectory) -> str:
    parameters = sum(p.numel() for p in trainer.model.parameters())
    sizes = ", ".join(map(str, trainer.model.rnn.hidden_sizes))
    processes = f", {trainer.world} processes" if trainer.world > 1 else ""
    return (
        f"{trainer.task.describe()}\n"
        f"model: layers of {sizes}; {parameters:,} parameters; engine {trainer.engine} on {trainer.device}{processes}\n"
        f"run: {run.path}"
    )


def _state(event: dict[str, Any], task: Task) -> str:
    per, symbols = (name.replace("character", "char") for name in (task.per, f"{task.symbol}s"))
    speed = f"{event['symbols_per_second']:,} {symbols}/s"
    skipped = f", {event['skipped']} updates skipped" if event.get("skipped") else ""
    return f"{event[task.unit]:.3f} {task.unit}/{per}, {speed}, boundary rates {_rates(event['rates'])}{skipped}"


def _rates(rates: list[float] | tuple[float, ...]) -> str:
    return " ".join(f"z{l}={rate:.3f}" for l, rate in enumerate(rates, start=1)) or "none"


def show_progress(what: str) -> Callable[[int, int], None] | None:
    """A function that shows how much of something is done, and how long the rest will take; None if nobody watches."""
    return _bar(what) if sys.stderr.isatty() else None


def _bar(what: str) -> Callable[[int, int], None]:
    start: tuple[float, int] | None = None

    def show(done: int, total: int) -> None:
        nonlocal start
        now = time.monotonic()
        start = start or (now, done)  # what a resumed job had done before took no time of this one
        share = done / max(total, 1)
        bar = "\u2501" * round(24 * share) + "\u2500" * (24 - round(24 * share))
        left = ""
        if now - start[0] > 2 and done > start[1]:
            left = f"  {duration((total - done) * (now - start[0]) / (done - start[1]))} left"
        end = "\r\033[K" if done >= total else ""
        sys.stderr.write(f"\r{what} {bar} {100 * share:5.1f}%{left}\033[K{end}")
        sys.stderr.flush()

    return show


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def reading_progress(what: str, symbols: int, faster: str) -> Callable[[int, int], None] | None:
    """As :func:`show_progress`; whoever watches a long text being read is told what is faster."""
    progress = show_progress(what)
    if progress is not None and symbols > LONG:
        sys.stderr.write(
            f"{symbols:,} symbols, read one after the other; {faster} reads parts of a text side by side\n"
        )
    return progress


def evaluation_table(result: Evaluation, what: str, how: str, unit: str = "character") -> str:
    """Bits per ``unit``, and what each layer did; ``how`` says in how many streams the text was read."""
    lines = [f"{what}: {result.symbols:,} symbols predicted, {how}", f"bits per {unit}  {result.bits:.4f}"]
    for l, share in enumerate(result.updates, start=1):
        rate = f", boundary rate {result.rates[l - 1]:.4f}" if l <= len(result.rates) else ""
        lines.append(f"layer {l}  updated at {share:.1%} of the steps{rate}")
    total, dense = sum(result.updates), len(result.updates)
    lines.append(f"updates saved  {result.saved:.1%}  (per 270 {unit}s: {270 * total:.0f} instead of {270 * dense})")
    return "\n".join(lines)


def corpus_table(corpus: Corpus) -> str:
    """What a corpus holds."""
    lines = [f"{corpus.name}: {len(corpus.vocabulary)} symbols ({corpus.vocabulary.kind})"]
    for name in ("train", "valid", "test"):
        part: np.ndarray = getattr(corpus, name)
        replaced = f", {corpus.replaced[name]} replaced by the unknown symbol" if corpus.replaced.get(name) else ""
        start = corpus.vocabulary.decode(part[:60])
        lines.append(f"{name:5} {len(part):>12,} symbols{replaced}, starts {start!r}")
    return "\n".join(lines)


def segmentation(result: Segmentation, width: int = 0) -> str:
    """Segments level by level, coloured on a terminal and set apart by bars when piped; then the update counts."""
    console = Console()
    colour = console.is_terminal and not console.no_color
    shown = result.render(width=width or min(console.width, 100), colour=colour)
    return f"{shown}\n{result.updates()}"


def print_table(
    title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], console: Console | None = None
) -> None:
    """A small table, the first column left, the others right."""
    console = console or Console(highlight=False, markup=False)
    console.print(title, style="bold", soft_wrap=True)
    table = Table()
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
