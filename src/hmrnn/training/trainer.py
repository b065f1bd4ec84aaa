"""Trainer: task, optimizer and progress of a run; one update, one validation, and what going on later takes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import State, choose_engine, states
from hmrnn.ops.estimators import annealed_slope
from hmrnn.tasks.base import Validation
from hmrnn.tasks.registry import make_task
from hmrnn.training.capture import CapturedUpdate
from hmrnn.training.detectors import (
    ALWAYS,
    SILENT,
    Average,
    advice,
    bound_feedback,
    condition,
    control_rates,
    decay,
    detector_pull,
    lacking_bias,
    leave_to_control,
    prepare,
    start_rates,
)
from hmrnn.training.finite import Watch
from hmrnn.training.progress import Progress


class Trainer:
    """A run: task, optimizer and progress. ``train`` drives it."""

    def __init__(self, config: Config, data: Any, device: torch.device, rank: int = 0, world: int = 1) -> None:
        config.check()
        t = config.train
        if t.batch_size % (world * t.accumulate):
            raise InputError(
                f"train.batch_size {t.batch_size} must be a multiple of processes x train.accumulate "
                f"= {world} x {t.accumulate}"
            )
        self.config, self.device, self.rank, self.world = config, device, rank, world
        self.task = make_task(config, data, device, rank, world)
        self.model: Any = self.task.model
        prepare(self.model, config)
        self.engine = self._chosen_engine()  # or an error that says why the one that was asked for cannot run here
        torch.manual_seed(t.seed + 1 + rank)  # every process makes its own draws
        self.network = DistributedDataParallel(self.model) if world > 1 else self.model
        on_gpu: dict[str, Any] = {"fused": True, "capturable": True} if device.type == "cuda" else {}
        rate = torch.tensor(t.learning_rate, device=device) if on_gpu else t.learning_rate
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, **on_gpu)
        if on_gpu:  # where this is 1, the fused step does nothing
            self.optimizer.found_inf = torch.zeros((), device=device)  # type: ignore[attr-defined]
        self.watch = Watch(self.model, device)
        self.captured = CapturedUpdate(self.update) if device.type == "cuda" and world == 1 else None
        rows = t.batch_size // world
        self.state: State | None = self.model.rnn.initial_state(rows) if self.task.carries_state else None
        self.progress = Progress(learning_rate=t.learning_rate, corpus=self.task.checksum)
        detectors = self.model.rnn.num_boundaries
        self.window = torch.zeros(1 + detectors, dtype=torch.float64, device=device)  # loss, boundary rates
        self.epoch = torch.zeros_like(self.window)  # updates, boundary rates
        average = config.regularise.average
        self.average = Average(self.model, average) if average > 0 else None

    def _chosen_engine(self) -> str:
        for module in self.model.modules():
            if isinstance(module, HMLSTM):
                return choose_engine(module.engine, self.device, module.options())
        return "torch"

    def step(self) -> None:
        """The next update."""
        p, t, d = self.progress, self.config.train, self.config.detectors
        if p.step == 0 and d.start_at_rates:
            start_rates(self.model, self._first_rates, d.rates)
        if p.chunk == 0:
            for a in states.named(self.state).values():
                a.zero_()
            self.model.rnn.slope = annealed_slope(p.epoch, *d.slope)
        if t.cool_down > 0:
            self._set_rate()
        (self.captured or self.update)(self.task.batch(p.epoch, p.chunk))
        p.step += 1
        p.window_steps += 1
        p.chunk += 1
        if p.chunk == self.task.chunks:
            p.epoch, p.chunk = p.epoch + 1, 0

    def update(self, batch: tuple[Tensor, ...]) -> None:
        """Forward, backward, clipping, Adam and decay for a batch, in ``accumulate`` parts; the state is carried over.

        If its loss or gradient is not finite, the update is noted by ``watch``, and nothing else changes. Reads and
        writes tensors that stay where they are, and waits for a GPU at no place of its own, so that it can be captured.
        """
        t, r, d = self.config.train, self.config.regularise, self.config.detectors
        self.optimizer.zero_grad()
        carried = []
        loss = torch.zeros_like(self.window[:1])
        total, lacking = torch.zeros_like(self.window[1:]), torch.zeros_like(self.window[1:])
        steps = torch.zeros_like(loss)
        for k, (part, state) in enumerate(zip(_split(batch, t.accumulate), states.split(self.state, t.accumulate))):
            last = k == t.accumulate - 1
            with self._sync(last), self._autocast():
                reading = self.task.loss(self.network, part, state)
                rates = reading.rates()
                pull = detector_pull(reading, rates, d) if d.rates else 0.0
            with self._sync(last):
                ((reading.value + pull) / t.accumulate).backward()
            carried.append(reading.state.detach())
            loss += reading.value.detach().double() / t.accumulate
            weight = reading.weight()
            steps += weight
            total += rates.detach() * weight
            if d.rate_control > 0:
                lacking += lacking_bias(reading, d.rates, self.model.rnn) * weight
        if d.rate_control > 0:
            leave_to_control(self.model.rnn)
        if reading.active is not None:  # shares of a batch, and of processes, hold more of it or less
            steps = self._mean(steps).clamp(min=1)
        sums = torch.cat([loss, total / steps])
        good, norm = self.watch.note(sums[0], self.world)
        if self.device.type == "cpu" and not good:
            return
        sums = torch.where(good, sums, torch.zeros_like(sums))
        self.window += sums
        self.epoch += torch.cat([good[None], sums[1:]])
        if self.state is not None:
            states.copy(self.state, states.join(carried), good)
        if t.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), t.clip_norm, norm)
        if self.device.type == "cuda":
            self.optimizer.found_inf.copy_(~good)  # type: ignore[attr-defined]
        self.optimizer.step()
        rate = self.optimizer.param_groups[0]["lr"]
        if r.weight_decay > 0:
            decay(self.model, (rate * good if isinstance(rate, Tensor) else rate) * r.weight_decay)
        bound_feedback(self.model, *d.bounds, good)
        if d.rate_control > 0:
            control_rates(self.model.rnn, self._mean(lacking / steps), d.rate_control * (rate / t.learning_rate), good)
        if self.average is not None:
            self.average.update(good)

    @torch.no_grad()
    def _first_rates(self) -> Tensor:
        """(detectors,): how often each detector fires on the first batch, over all processes."""
        with self._autocast():
            reading = self.task.loss(self.model, self.task.batch(0, 0), self.state)
        weight = reading.weight().double()
        return self._mean(reading.rates() * weight) / self._mean(weight).clamp(min=1)

    def window_means(self) -> tuple[float, list[float]] | None:
        """The measure and the boundary rates since the last call, averaged over processes.

        None if all updates since then were left out: there is nothing to say yet.
        """
        made = self.progress.window_steps - self.watch.skipped()
        if made == 0:
            return None
        if self.world > 1:
            dist.all_reduce(self.window)
        loss, *rates = (self.window / (self.world * made)).tolist()
        self.window.zero_()
        self.progress.window_steps = 0
        self.progress.skipped += self.watch.report()
        return self.task.measure(loss), rates

    def count_skipped(self) -> None:
        """Add to ``progress`` the updates that were left out since the last line."""
        self.progress.window_steps -= self.watch.skipped()
        self.progress.skipped += self.watch.report()

    def changed_detectors(self) -> list[dict[str, Any]]:
        """At the end of an epoch: which detectors have fallen silent, fire always or have come back since the last."""
        if self.world > 1:
            dist.all_reduce(self.epoch)
        updates, *sums = self.epoch.tolist()
        self.epoch.zero_()
        if updates == 0:
            return []
        before = self.progress.conditions or ["alive"] * len(sums)
        rates = [total / updates for total in sums]
        now = [_condition(rate, old) if free else "alive" for rate, old, free in zip(rates, before, self._free())]
        self.progress.conditions = now
        settable = len(sums) if self.config.model.rnn == "hm-lstm" else 0
        held, biased = bool(self.config.detectors.rates), bool(self.config.detectors.bias)
        return [
            {"layer": l, "condition": new, "rate": rate, "message": advice(l, rate, settable, held, biased)}
            for l, (rate, old, new) in enumerate(zip(rates, before, now), start=1)
            if new != old
        ]

    def _free(self) -> list[bool]:
        """Whether each detector decides for itself: where a text gives the boundaries away, it does not."""
        given: Tensor | None = getattr(self.model, "given", None)  # (symbols, detectors), NaN where free
        return [True] * self.model.rnn.num_boundaries if given is None else given.isnan().all(0).tolist()

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Measure the model, or the average of its weights where there is one."""
        with self.average.applied() if self.average is not None else contextlib.nullcontext():
            return self.task.validate(progress)

    def judge(self, measure: float) -> bool:
        """Take note of a validation: True if it is the best; divides the rate, or ends the run, on a plateau."""
        p, t = self.progress, self.config.train
        best = p.best is None or measure < p.best - t.min_improvement
        if best:
            p.best, p.best_step, p.stale = measure, p.step, 0
        else:
            p.stale += 1
        self._apply_limits()
        return best

    def _apply_limits(self) -> None:
        p, t = self.progress, self.config.train
        if p.stale >= t.patience:
            if p.divisions >= t.divisions:
                p.finished = f"validation stopped improving after {p.divisions} division(s) of the rate"
            else:
                p.learning_rate, p.divisions, p.stale = p.learning_rate / t.divide_rate_by, p.divisions + 1, 0
                self._set_rate()
        if p.finished is None and p.chunk == 0 and p.epoch >= t.epochs:
            p.finished = self._all_done()

    def _all_done(self) -> str:
        return f"all {self.config.train.epochs} epochs are done"

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a run beside its weights; a collective call under torchrun."""
        result = {f"window.{rank}": window for rank, window in enumerate(_gather(self.window, self.world))}
        result |= {f"epoch.{rank}": epoch for rank, epoch in enumerate(_gather(self.epoch, self.world))}
        result["watch"] = self.watch.counts
        if self.average is not None:
            result |= {f"average.{name}": tensor for name, tensor in self.average.tensors().items()}
        for name, part in states.named(self.state).items():
            result[f"state.{name}"] = torch.cat(_gather(part, self.world))
        for rank, random in enumerate(_gather(torch.get_rng_state().to(self.device), self.world)):
            result[f"random.cpu.{rank}"] = random
        if self.device.type == "cuda":
            for rank, random in enumerate(_gather(torch.cuda.get_rng_state(self.device).to(self.device), self.world)):
                result[f"random.cuda.{rank}"] = random
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                result[f"optimizer.{name}.{key}"] = value
        return result

    def restore(self, saved: Checkpoint) -> None:
        """Go back to where ``saved`` was written."""
        assert saved.progress is not None
        assert saved.training is not None
        progress = Progress.of(saved.progress)
        if (progress.corpus, saved.reads) != (self.task.checksum, self.task.reads):
            raise InputError(
                "the training or validation data are not those this run began with; bring them back, or start a new run"
            )
        made_by = sum(name.startswith("random.cpu.") for name in saved.training)
        if made_by != self.world:
            raise InputError(
                f"this run was made by {made_by} process(es) and can only go on with as many; got {self.world}"
            )
        try:
            self.progress = progress
            self.model.load_state_dict(saved.weights)
            tensors = {name: tensor.to(self.device) for name, tensor in saved.training.items()}
            self.window = tensors[f"window.{self.rank}"]
            self.epoch = tensors[f"epoch.{self.rank}"]
            self.watch.counts = tensors["watch"]
            if self.average is not None:
                self.average.restore(_under("average.", tensors))
            for name, part in states.named(self.state).items():
                part.copy_(tensors[f"state.{name}"][self.rank * len(part) : (self.rank + 1) * len(part)])
            for name, parameter in self.model.named_parameters():
                self.optimizer.state[parameter] = _under(f"optimizer.{name}.", tensors)
            torch.set_rng_state(saved.training[f"random.cpu.{self.rank}"])
            drawn = saved.training.get(f"random.cuda.{self.rank}")
            if self.device.type == "cuda" and drawn is not None:  # not if the run began on a CPU
                torch.cuda.set_rng_state(drawn, self.device)
        except (KeyError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the checkpoint does not fit this run: {reason}") from error
        self._set_rate()
        self._go_on()

    def _go_on(self) -> None:
        """Take up settings that may have been changed since the checkpoint, and what it does not hold."""
        p, t = self.progress, self.config.train
        if p.chunk > 0:  # a network without detectors does not keep it
            self.model.rnn.slope = annealed_slope(p.epoch, *self.config.detectors.slope)
        if not t.skip_nonfinite and self.watch.skipped():  # by a run that left such updates out
            self.count_skipped()
        validated = t.validate_every == 0 or p.step % t.validate_every == 0
        if p.finished is not None:  # epochs, patience or divisions may have been raised
            p.finished = None
            self._apply_limits()
        elif p.chunk == 0 and p.epoch >= t.epochs and validated:
            p.finished = self._all_done()

    def snapshot(self, *, training: bool) -> Checkpoint:
        """What is written to disk now: a state that training can go on from, or the model that is used."""
        weights = dict(self.model.state_dict())
        if not training:
            weights |= self.average.weights if self.average is not None else {}
            return Checkpoint(self.config, self.task.reads, weights)
        return Checkpoint(self.config, self.task.reads, weights, dataclasses.asdict(self.progress), self.tensors())

    def rate(self) -> float:
        """The learning rate of the next update."""
        p, t = self.progress, self.config.train
        total = t.epochs * self.task.chunks
        left = (total - p.step) / (t.cool_down * total) if t.cool_down > 0 else 1.0
        return p.learning_rate * min(1.0, max(0.0, left))

    def _set_rate(self) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.rate())
            else:
                group["lr"] = self.rate()

    def _mean(self, rates: Tensor) -> Tensor:
        """Over all processes."""
        if self.world > 1:
            rates = rates.clone()
            dist.all_reduce(rates)
        return rates / self.world

    def _sync(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.network, DistributedDataParallel) and not last:
            return self.network.no_sync()
        return contextlib.nullcontext()

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.train.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


def _condition(rate: float, before: str) -> str:
    """``condition``, but a detector counts as back only at twice the limit: rates close to it cross it to and fro."""
    back = {"silent": rate > 2 * SILENT, "always": rate < 1 - 2 * (1 - ALWAYS)}
    now = condition(rate)
    return before if now == "alive" and not back.get(before, True) else now


def _gather(part: Tensor, world: int) -> list[Tensor]:
    if world == 1:
        return [part]
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part.contiguous())
    return parts


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _split(batch: tuple[Tensor, ...], parts: int) -> list[tuple[Tensor, ...]]:
    """Equal shares of the sequences of a batch of tensors (T, B, ...) and (B,)."""
    return list(zip(*(a.chunk(parts, dim=min(1, a.dim() - 1)) for a in batch)))
