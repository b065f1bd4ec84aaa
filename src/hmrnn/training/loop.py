"""The training loop: updates, validations, the paper's schedules, checkpoints, and nothing lost."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
import torch.distributed as dist
from msgspec import UNSET, UnsetType

from hmrnn.errors import InputError
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.signals import asked_to_stop


def train(trainer: Trainer, run: RunDirectory, *, resume: bool = False) -> Iterator[dict[str, Any]]:
    """Train until done, or until SIGINT or SIGTERM asks to stop; everything is saved by then.

    Yields what happens, for whoever wants to show it: the lines of metrics.jsonl ("train", "valid", "detector" for one
    that collapses), a "step" after every update and one "end" with the reason, and the signal if there was one.
    """
    if resume:
        trainer.restore(run.newest_state())
        run.drop_best_after(trainer.progress.step)
    run.store(trainer.config)
    return _train(trainer, run)


def _train(trainer: Trainer, run: RunDirectory) -> Iterator[dict[str, Any]]:
    t, p, task = trainer.config.train, trainer.progress, trainer.task
    began = saved = window_began = time.monotonic()
    before, window_step = p.seconds, p.step

    def check_finite(measure: float = 0.0) -> None:
        trouble = trainer.watch.trouble(p.step, t.skip_nonfinite)
        weights = trainer.model.named_parameters()
        wrong = [name for name, weight in weights if not weight.isfinite().all()] if trouble is None else []
        if wrong or not math.isfinite(measure):
            trouble = f"{f'the weight {wrong[0]}' if wrong else 'the validation'} is not finite at step {p.step}"
        if trouble is not None:
            skip = "" if t.skip_nonfinite or wrong else ", or leave such updates out by train.skip_nonfinite"
            lower = "train.learning_rate or train.clip_norm"
            if not wrong and trainer.watch.from_the_start(p.step) and trainer.model.rnn.num_boundaries:
                lower = "detectors.bias, train.recurrent_gain or detectors.bounds"  # no step has been made
            advice = f"start again with a lower {lower}{skip}"
            if run.states():
                advice += f" (the last checkpoint in {run.path} is intact, and --resume goes on from it)"
            raise InputError(f"{trouble}; {advice}")

    def save(best: bool = False) -> None:
        nonlocal saved
        check_finite()
        p.seconds = before + time.monotonic() - began
        if best:
            run.save("best", p.step, trainer.snapshot(training=False))
        run.save("last", p.step, trainer.snapshot(training=True))
        saved = time.monotonic()

    with run.metrics(p.metrics_bytes) as write_line, asked_to_stop() as asked:
        while p.finished is None:
            if stepped := p.epoch < t.epochs or p.chunk > 0:  # else resumed for fewer epochs, and not validated yet
                trainer.step()
            epoch_ends = p.chunk == 0
            due = epoch_ends if t.validate_every == 0 else p.step % t.validate_every == 0
            due = due or (epoch_ends and p.epoch >= t.epochs)
            where = {"step": p.step, "epoch": p.epoch + p.chunk / task.chunks}
            means, skipped = None, p.skipped
            if p.step % t.log_every == 0 or due:
                check_finite()
                means = trainer.window_means()
            if means is not None:
                measure, rates = means
                now = time.monotonic()
                speed = (p.step - window_step) * task.symbols / max(now - window_began, 1e-9)
                window_began, window_step = now, p.step
                line = {
                    "event": "train", **where, task.unit: measure, "rates": rates, "learning_rate": trainer.rate(),
                    "slope": trainer.model.rnn.slope, "symbols_per_second": round(speed),
                    "seconds": round(before + now - began, 3),
                } | ({"skipped": p.skipped - skipped} if t.skip_nonfinite else {})  # fmt: skip
                p.metrics_bytes = write_line(line)
                yield line
            for change in trainer.changed_detectors() if epoch_ends and stepped else ():
                line = {"event": "detector", **where, **change}
                p.metrics_bytes = write_line(line)
                yield line
            if due:
                result = trainer.validate()
                check_finite(result.measure)
                best = trainer.judge(result.measure)
                if p.finished is not None:
                    trainer.count_skipped()  # those after the last line
                line = {
                    "event": "valid", **where, task.unit: result.measure, "rates": list(result.rates),
                    "updates": list(result.updates), "best": best, "learning_rate": trainer.rate(),
                }  # fmt: skip
                p.metrics_bytes = write_line(line)
                save(best)
                yield line
                window_began = time.monotonic()
            yield {"event": "step", **where}
            stop, save_due = _agree(trainer, asked, time.monotonic() - saved > t.checkpoint_every)
            if stop and p.finished is None:
                save()
                yield {"event": "end", **where, "reason": f"stopped by {stop}", "signal": stop}
                return
            if save_due:
                save()
    yield {"event": "end", "step": p.step, "epoch": float(p.epoch), "reason": p.finished, "signal": None}


@contextlib.contextmanager
def processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """(rank, number of processes): torchrun's, or (0, 1) without it."""
    if "RANK" not in os.environ:
        yield 0, 1
        return
    # DDP imports this. Imported while there is a group, it keeps that group as a default of its functions, and
    # gloo's threads live on while the interpreter ends; one that lets go of a tensor so late aborts the process.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        gc.collect()  # a network that only a cycle holds, as frames of torch's imports may, goes before the group, too
        dist.destroy_process_group()


def _agree(trainer: Trainer, asked: list[str], save_due: bool) -> tuple[str | None, bool]:
    """Whether to stop (and by which signal) and to save: one answer for all processes."""
    if trainer.world == 1:
        return (asked[0] if asked else None), save_due
    number = int(signal.Signals[asked[0]]) if asked else 0
    flags = torch.tensor([number, int(save_due)], device=trainer.device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    number, due = flags.tolist()
    return (signal.Signals(number).name if number else None), bool(due)


class _Where(msgspec.Struct, tag_field="event"):
    """What a line of metrics.jsonl must hold for whoever reads it; it may hold more."""

    step: int
    epoch: float


class _Detector(_Where, tag="detector"):
    pass


class _Measured(_Where, kw_only=True):
    rates: list[float]
    bits: float | UnsetType = UNSET
    nats: float | UnsetType = UNSET

    def shape(self) -> tuple[str, int]:
        """What all such lines of a run have in common: the measure, and the number of rates."""
        units = [name for name in ("bits", "nats") if getattr(self, name) is not UNSET]
        if len(units) != 1:
            raise ValueError("it must hold either bits or nats")
        return units[0], len(self.rates)


class _Train(_Measured, tag="train", kw_only=True):
    symbols_per_second: float


class _Valid(_Measured, tag="valid", kw_only=True):
    updates: Annotated[list[float], msgspec.Meta(min_length=1)]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, each with what its event brings along."""
    try:
        written = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); expected a run directory") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    lines: list[dict[str, Any]] = []
    shape = None
    for number, text in enumerate(written, start=1):
        try:
            lines.append(json.loads(text))
            line = msgspec.convert(lines[-1], type=_Train | _Valid | _Detector)
            if isinstance(line, _Measured):
                shape = shape or line.shape()
                if line.shape() != shape:
                    raise ValueError(f"it must hold {shape[0]} and {shape[1]} rates, as the lines before it do")
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InputError(f"{path} is damaged in line {number}: {error}; mend or remove that line") from error
    return lines
