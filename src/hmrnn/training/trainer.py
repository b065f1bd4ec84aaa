"""Trainer: task, optimizer and progress of a run; one update and one validation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kind import of as kind_of
from hmrnn.nn.hmlstm import hmlstms
from hmrnn.nn.recurrent import autocast
from hmrnn.ops import State
from hmrnn.ops.estimators import annealed_slope, linear
from hmrnn.training import resume
from hmrnn.training.capture import CapturedUpdate
from hmrnn.training.finite import Watch
from hmrnn.training.prepare import new_optimizer, prepare
from hmrnn.training.progress import Progress
from hmrnn.training.task import Task, Validation
from hmrnn.training.terms import make_terms, needs_of


class Trainer:
    """A run: task, optimizer and progress. ``hmrnn.training.loop.train`` drives it."""

    tensors, snapshot, restore = resume.tensors, resume.snapshot, resume.restore

    def __init__(
        self,
        config: Config,
        data: Any,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
        start: Checkpoint | None = None,
    ) -> None:
        """``start`` is the model that train.start_from names; not needed if a state is restored afterwards."""
        config.check()
        what = kind_of(config)
        config = what.settle(config, data)
        t = config.train
        if t.batch_size % (world * t.accumulate):
            raise InputError(
                f"must be a multiple of processes x train.accumulate = {world} x {t.accumulate}",
                setting="train.batch_size",
                value=t.batch_size,
            )
        self.config, self.device, self.rank, self.world = config, device, rank, world
        torch.manual_seed(t.seed)  # the initial weights depend on it alone
        self.task: Task = what.task(config, data, device, rank, world)
        self.measure = what.measure(self.task.reads)
        self.terms = make_terms(config)
        self.task.needs = needs_of(self.terms, self.task.offers)
        self.task.own_share = torch.zeros((), device=device) if any(t.scheduled_sampling) else None
        self.model: Any = self.task.model
        prepare(self.model, config)
        if start is not None:
            self._start_from(start)
        self.engine = self.model.rnn.engine_for(device)
        torch.manual_seed(t.seed + 1 + rank)  # every process makes its own draws
        self.network = DistributedDataParallel(self.model) if world > 1 else self.model
        self.optimizer = new_optimizer(self.model, t, device)
        self.watch = Watch(self.model, device)
        captures = device.type == "cuda" and world == 1 and self.task.capturable
        self.captured = CapturedUpdate(self._learn) if captures else None
        rows = t.batch_size // world
        self.state: State | None = self.model.rnn.initial_state(rows) if self.task.carries_state else None
        self.progress = Progress(learning_rate=t.learning_rate, corpus=self.task.checksum)
        rnn = self.model.rnn
        detectors = rnn.num_boundaries * len(getattr(rnn, "directions", (rnn,)))
        self.window = torch.zeros(2 + detectors, dtype=torch.float64, device=device)  # sums since the last line
        self.epoch = torch.zeros_like(self.window)
        for term in self.terms:
            term.start(self)

    def _start_from(self, source: Checkpoint) -> None:
        try:
            self.task.adopt(dict(source.weights), source.reads)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the weights to start from do not fit the model of this run: {reason}") from error

    def step(self) -> None:
        """Make the next update."""
        p = self.progress
        if p.step == 0:
            self._tell_epoch()
        if p.chunk == 0:
            if self.state is not None:
                self.state.apply(torch.Tensor.zero_)
            self.set_schedules()
        if self.config.train.cool_down > 0:
            self.set_rate()
        (self.captured or self._learn)(self.task.batch(p.epoch, p.chunk))
        p.step += 1
        p.chunk += 1
        if p.chunk == self.task.chunks:
            p.epoch, p.chunk = p.epoch + 1, 0
            self._tell_epoch()

    def _tell_epoch(self) -> None:
        for term in self.terms:
            term.epoch(self, self.progress.epoch)

    def _learn(self, batch: tuple[Tensor, ...]) -> None:
        if not any(term.update(self, batch) for term in self.terms):
            self.update(batch)

    def update(self, batch: tuple[Tensor, ...]) -> None:
        """Forward, backward, clipping, optimizer and terms for one batch, in ``accumulate`` parts.

        An update whose loss or gradient is not finite is counted by ``watch`` and changes nothing else. All tensors
        keep their memory and the host never waits for the GPU, so that an update can be captured in a CUDA graph.
        """
        t = self.config.train
        self.optimizer.zero_grad()
        carried, sums = [], torch.zeros_like(self.window)  # sums: updates, loss, boundary rates
        steps = torch.zeros_like(sums[:1])
        before = [None] * t.accumulate if self.state is None else self.state.split(t.accumulate)
        for k, (part, state) in enumerate(zip(_split(batch, t.accumulate), before)):
            last = k == t.accumulate - 1
            with self._sync(last), self.autocast():
                loss = self.task.loss(self.network, part, state)
                added = [loss.more, *(term.loss(loss) for term in self.terms)]
            with self._sync(last):
                (sum((a for a in added if a is not None), loss.value) / t.accumulate).backward()
            carried.append(loss.state.detach())
            sums[1] += loss.value.detach().double() / t.accumulate
            weight = loss.weight()
            steps += weight
            sums[2:] += loss.rates().detach() * weight
        for term in self.terms:
            term.before_step()
        if loss.active is not None:  # with padding, parts and processes hold different numbers of steps
            steps = self.mean(steps).clamp(min=1)
        sums[2:] /= steps
        sums[0].fill_(1)
        good, norm = self.watch.note(sums[1], self.world)
        for total in (self.window, self.epoch):
            total += torch.where(good, sums, 0.0)
        if self.state is not None:
            self.state.copy_(carried[0].apply(lambda *parts: torch.cat(parts), *carried[1:]), good)
        if self.device.type == "cuda" or good:
            self._optimize(norm, good)
        rate = self.optimizer.param_groups[0]["lr"]
        for term in self.terms:
            term.after_update(good, rate)

    def _optimize(self, norm: Tensor, good: Tensor) -> None:
        """Clip the gradient, whose norm is ``norm``, and make a step, which on a GPU only happens if ``good``."""
        t = self.config.train
        if t.clip_value > 0:
            torch.nn.utils.clip_grad_value_(self.model.parameters(), t.clip_value)
            norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        if t.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), t.clip_norm, norm)
        if self.device.type == "cuda":
            self.optimizer.found_inf.copy_(~good)
        self.optimizer.step()

    def window_means(self) -> tuple[float, list[float]] | None:
        """The measure and the boundary rates since the last call, over all processes.

        None if all updates were skipped, or none was made by gradient.
        """
        made, *sums = self.mean(self.window).tolist()
        if made == 0:
            return None
        self.window.zero_()
        self.count_skipped()
        loss, *rates = (total / made for total in sums)
        return self.task.measure(loss), rates

    def count_skipped(self) -> None:
        """Add the updates skipped since the last line of metrics to ``progress``."""
        self.progress.skipped += self.watch.report()

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Measure the model."""
        with self.validating():
            return self.task.validate(progress)

    @contextlib.contextmanager
    def validating(self) -> Iterator[None]:
        """Within it the model has the weights to measure and to save as the best, such as their average."""
        with contextlib.ExitStack() as stack:
            for term in self.terms:
                stack.enter_context(term.validating())
            yield

    def judge(self, measure: float) -> bool:
        """Record a validation: True if it is the best. On a plateau the learning rate is divided, or the run ends."""
        best = self.progress.judge(measure, self.config.train)
        self.set_rate()
        return best

    def rate(self) -> float:
        """The learning rate of the next update."""
        t, p = self.config.train, self.progress
        total = t.epochs * self.task.chunks
        left = (total - p.step) / (t.cool_down * total) if t.cool_down > 0 else 1.0
        return p.learning_rate * min(1.0, max(0.0, left))

    def mean(self, part: Tensor) -> Tensor:
        """The mean of ``part`` over all processes."""
        if self.world > 1:
            part = part.clone()
            dist.all_reduce(part)
        return part / self.world

    def set_schedules(self) -> None:
        """Set slope and temperature of the detectors, and the share of own inputs, for this epoch."""
        epoch, d, rnn = self.progress.epoch, self.config.detectors, self.model.rnn
        if self.task.own_share is not None:
            t = self.config.train
            self.task.own_share.fill_(linear(epoch, t.epochs, *t.scheduled_sampling))
        if self.config.train.start_from is None or d.slope[0] > 0:  # otherwise it stays as in the model to start from
            rnn.slope = annealed_slope(epoch, *d.slope)
        for module in hmlstms(self.model):
            if module.tau is not None:
                module.temperature = linear(epoch, self.config.train.epochs, *d.temperature)

    def set_rate(self) -> None:
        """Give the optimizer its learning rate."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.rate())
            else:
                group["lr"] = self.rate()

    def _sync(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if isinstance(self.network, DistributedDataParallel) and not last:
            return self.network.no_sync()
        return contextlib.nullcontext()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which losses are computed, by train.precision."""
        return autocast(self.config.train.precision, self.device)


def _split(batch: tuple[Tensor, ...], parts: int) -> list[tuple[Tensor, ...]]:
    """Equal shares of the sequences of a batch of tensors (T, B, ...) and (B,)."""
    return list(zip(*(a.chunk(parts, dim=min(1, a.dim() - 1)) for a in batch)))
