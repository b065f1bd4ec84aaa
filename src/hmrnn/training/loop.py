"""The training loop: updates, lines of metrics, validations and checkpoints, until done or asked to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from hmrnn.training.detectors import changed_detectors
from hmrnn.training.finite import Diverged
from hmrnn.training.processes import agree
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer
from hmrnn.utils.devices import hardware
from hmrnn.utils.signals import asked_to_stop


def train(trainer: Trainer, run: RunDirectory, *, resume: bool = False) -> Iterator[dict[str, Any]]:
    """Train until done, or until SIGINT or SIGTERM asks to stop; everything is saved by then.

    Yields events: the lines of metrics.jsonl ("train", "valid", and "detector" when a detector collapses or recovers),
    a "step" after every update, and one "end" with the reason, and the signal if there was one. A run that starts from
    a model is validated first, at step 0, so that its best model is never worse than that one.
    """
    if resume:
        trainer.restore(run.newest_state())
        trainer.progress.metrics_bytes = run.check_metrics(trainer.progress.metrics_bytes)
        run.drop_best_after(trainer.progress.step)
    run.store(trainer.config)
    return _train(trainer, run)


def _train(trainer: Trainer, run: RunDirectory) -> Iterator[dict[str, Any]]:
    t, p, task, unit = trainer.config.train, trainer.progress, trainer.task, trainer.measure.unit
    began = saved = window_began = time.monotonic()
    before, window_step = p.seconds, p.step

    def save(best: bool = False) -> None:
        nonlocal saved
        _check_finite(trainer, run)
        p.seconds = before + time.monotonic() - began
        if best:
            run.save("best", p.step, trainer.snapshot(training=False))
        run.save("last", p.step, trainer.snapshot(training=True))
        saved = time.monotonic()

    def validate(where: dict[str, float]) -> dict[str, Any]:
        result = trainer.validate()
        _check_finite(trainer, run, result.measure)
        best = trainer.judge(result.measure)
        if p.finished is not None:
            trainer.count_skipped()  # those after the last line
        line = {
            "event": "valid", **where, unit: result.measure, "rates": list(result.rates),
            "updates": list(result.updates), "multiply_adds": result.multiply_adds, "best": best,
            "learning_rate": trainer.rate(), "hardware": hardware(trainer.device),
        }  # fmt: skip
        line |= {} if result.error is None else {"error": result.error}
        p.metrics_bytes = write_line(line)
        save(best)
        return line

    with run.metrics(p.metrics_bytes) as write_line, asked_to_stop() as asked:
        if t.start_from is not None and p.best is None:
            yield validate({"step": 0, "epoch": 0.0})
            window_began = time.monotonic()
        while p.finished is None:
            if stepped := p.epoch < t.epochs or p.chunk > 0:  # False if resumed with fewer epochs than are done
                trainer.step()
            epoch_ends = p.chunk == 0
            due = epoch_ends if t.validate_every == 0 else p.step % t.validate_every == 0
            due = due or (epoch_ends and p.epoch >= t.epochs)
            where = {"step": p.step, "epoch": p.epoch + p.chunk / task.chunks}
            lines: list[dict[str, Any]] = []
            if p.step % t.log_every == 0 or due:
                _check_finite(trainer, run)
                skipped, means = p.skipped, trainer.window_means()
                if means is not None:
                    now = time.monotonic()
                    speed = (p.step - window_step) * task.symbols / max(now - window_began, 1e-9)
                    window_began, window_step = now, p.step
                    line = {
                        "event": "train", **where, unit: means[0], "rates": means[1],
                        "learning_rate": trainer.rate(), "slope": trainer.model.rnn.slope,
                        "symbols_per_second": round(speed), "seconds": round(before + now - began, 3),
                    }  # fmt: skip
                    lines.append(line | ({"skipped": p.skipped - skipped} if t.skip_nonfinite else {}))
            if epoch_ends and stepped:
                lines += [{"event": "detector", **where, **change} for change in changed_detectors(trainer)]
            for line in lines:
                p.metrics_bytes = write_line(line)
                yield line
            if due:
                yield validate(where)
                window_began = time.monotonic()
            yield {"event": "step", **where}
            save_due = time.monotonic() - saved > t.checkpoint_every
            stop, save_due = agree(trainer.world, trainer.device, asked, save_due)
            if stop and p.finished is None:
                save()
                yield {"event": "end", **where, "reason": f"stopped by {stop}", "signal": stop}
                return
            if save_due:
                save()
    yield {"event": "end", "step": p.step, "epoch": float(p.epoch), "reason": p.finished, "signal": None}


def _check_finite(trainer: Trainer, run: RunDirectory, measure: float = 0.0) -> None:
    """Raise Diverged if an update, a weight or a validation is not finite and that ends the run."""
    t, step, watch = trainer.config.train, trainer.progress.step, trainer.watch
    trouble = watch.trouble(step, t.skip_nonfinite)
    weights = trainer.model.named_parameters()
    wrong = [name for name, weight in weights if not weight.isfinite().all()] if trouble is None else []
    if wrong or not math.isfinite(measure):
        trouble = f"{f'the weight {wrong[0]}' if wrong else 'the validation'} is not finite at step {step}"
    if trouble is None:
        return
    lower = "train.learning_rate or train.clip_norm"
    if not wrong and watch.from_the_start(step) and trainer.model.rnn.num_boundaries:  # before any update
        lower = "detectors.bias, train.recurrent_gain or detectors.bounds"
    skip = "" if t.skip_nonfinite or wrong else ", or skip such updates by train.skip_nonfinite"
    intact = f" (the last checkpoint in {run.path} is intact; the run can be resumed from it)" if run.states() else ""
    raise Diverged(trouble, f"start again with a lower {lower}{skip}{intact}")
