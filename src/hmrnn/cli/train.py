"""``hmrnn train``: run or resume a training, show its progress, and write a report at its end."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hmrnn import kind
from hmrnn.cli import display, progress
from hmrnn.cli.arguments import TrainArguments
from hmrnn.cli.report import write as write_report
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.pretrained.train import carry_out
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.tensorboard import TensorBoard
from hmrnn.training.trainer import Trainer


def run(arguments: TrainArguments) -> int:
    run = RunDirectory(Path(str(arguments.out)))
    again = f"hmrnn train {shlex.quote(arguments.target)} --out {shlex.quote(str(run.path))} --resume"
    first = os.environ.get("RANK", "0") == "0"
    return run_to_end(
        arguments.config, run, resume=arguments.resume, overwrite=arguments.overwrite, report=arguments.report,
        again=again, hint=True, callbacks=[TensorBoard(run.path)] if arguments.log and first else [],
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
    callbacks: Iterable[object] = (),
) -> int:
    """Train, show the progress and write the report; exit status. ``again`` is the command that resumes the run.

    With ``hint`` a command is shown that uses the model.
    """

    def follow(events: Iterator[dict[str, Any]], trainer: Trainer) -> dict[str, Any]:
        return progress.follow(events, trainer, run, quiet=not run.writer)

    reading = display.show_progress("reading")
    end, corpus, (unit, per) = carry_out(
        config, run, follow, resume=resume, overwrite=overwrite, reading=reading, callbacks=callbacks
    )
    if end["signal"] is not None:
        if run.writer:
            print(f"stopped by {end['signal']} at step {end['step']}; everything is saved. Resume with:\n  {again}")
        return 128 + signal.Signals[end["signal"]]
    if run.writer:
        metrics = read_metrics(run.path / "metrics.jsonl")
        if (source := config.train.start_from) is not None:
            found = {line["step"]: line[unit] for line in metrics if line["event"] == "valid"}
            if 0 in found:  # not if the lines before an interruption are lost
                change = f"{found[0]:.4f} by {source}, {min(found.values()):.4f} fine-tuned"
                print(f"validation part, {unit} per {per}: {change}")
        if report:
            print(f"report: {write_report(run.path, metrics, corpus)}")
        if hint:
            print(f"try: hmrnn {kind.of(config).commands(display.show_progress).next(run.config(), run.path, corpus)}")
    return 0


def run_or_use(config: Config, run: RunDirectory, again: str, fresh: bool, *, report: bool = True) -> int:
    """Train, resume an interrupted run, or find one on these data finished; exit status. ``again`` comes back here."""
    if run.holds_run and _reads(run.config()) != _reads(config):
        raise InputError(f"{run.path} holds another run; choose another --out, or remove it", setting="out")
    if not run.holds_run or fresh:
        return run_to_end(config, run, overwrite=fresh, again=again, report=report)
    if run.newest_progress().get("finished"):
        print(f"{run.path} holds a model of these data, which is used now ({again} --fresh trains again)\n")
        return 0
    return run_to_end(run.config(), run, resume=True, again=again, report=report)


def _reads(config: Config) -> Any:
    """What a run learns from."""
    return config.data, config.segments.known, config.segments.examples
