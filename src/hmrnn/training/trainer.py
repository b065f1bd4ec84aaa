"""Trainer: task, optimizer and progress of a run; one update, one validation, and the state of a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kind import of as kind_of
from hmrnn.nn.hmlstm import hmlstms
from hmrnn.ops import State, states
from hmrnn.ops.cuda.room import enough_room
from hmrnn.ops.estimators import annealed_slope, linear
from hmrnn.optim import Muon
from hmrnn.training import detectors
from hmrnn.training.capture import CapturedUpdate
from hmrnn.training.finite import Watch
from hmrnn.training.prepare import prepare
from hmrnn.training.processes import gather, mean
from hmrnn.training.progress import Progress
from hmrnn.training.task import Validation
from hmrnn.training.terms import make_terms, needs_of


class Trainer:
    """A run: task, optimizer and progress. ``hmrnn.training.loop.train`` drives it."""

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
                f"train.batch_size {t.batch_size} must be a multiple of processes x train.accumulate "
                f"= {world} x {t.accumulate}"
            )
        self.config, self.device, self.rank, self.world = config, device, rank, world
        torch.manual_seed(t.seed)  # the initial weights depend on it alone
        self.task = what.task(config, data, device, rank, world)
        self.measure = what.measure(self.task.reads)
        self.terms = make_terms(config)
        self.task.needs = needs_of(self.terms, self.task.offers)
        self.model: Any = self.task.model
        prepare(self.model, config)
        if start is not None:
            self._start_from(start)
        rows = t.batch_size // world
        self.engine = self.model.rnn.engine_for(device, rows // t.accumulate)
        torch.manual_seed(t.seed + 1 + rank)  # every process makes its own draws
        self.network = DistributedDataParallel(self.model) if world > 1 else self.model
        self.optimizer = self._new_optimizer()
        self.watch = Watch(self.model, device)
        captures = device.type == "cuda" and world == 1 and self.task.capturable
        self.captured = CapturedUpdate(self._learn) if captures else None
        self.state: State | None = self.model.rnn.initial_state(rows) if self.task.carries_state else None
        self.progress = Progress(learning_rate=t.learning_rate, corpus=self.task.checksum)
        count = detectors.count(self.model.rnn)
        self.window = torch.zeros(2 + count, dtype=torch.float64, device=device)  # sums since the last line
        self.epoch = torch.zeros_like(self.window)
        for term in self.terms:
            term.start(self)

    def _start_from(self, source: Checkpoint) -> None:
        try:
            self.task.adopt(dict(source.weights), source.reads)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the weights to start from do not fit the model of this run: {reason}") from error

    def _new_optimizer(self) -> torch.optim.Optimizer:
        """That of the settings; on a GPU its step can be captured and does nothing while ``found_inf`` is 1."""
        t, device = self.config.train, self.device
        optimizer: Any
        betas, on_gpu = (t.beta1, 0.999), device.type == "cuda"
        rate = torch.tensor(t.learning_rate, device=device) if on_gpu else t.learning_rate
        if t.optimizer == "muon":
            optimizer = Muon(self.model, rate, adam_rate=t.adam_rate, betas=betas)
        else:
            optimizer = Adam(self.model.parameters(), rate, betas, fused=on_gpu or None, capturable=on_gpu)
        if on_gpu:
            optimizer.found_inf = torch.zeros((), device=device)
        return optimizer

    def step(self) -> None:
        """Make the next update."""
        p = self.progress
        if p.step == 0:
            self._tell_epoch()
        if p.chunk == 0:
            for a in states.named(self.state).values():
                a.zero_()
            self._set_schedules()
        if self.config.train.cool_down > 0:
            self._set_rate()
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
        for k, (part, state) in enumerate(zip(_split(batch, t.accumulate), states.split(self.state, t.accumulate))):
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
            steps = mean(steps, self.world).clamp(min=1)
        sums[2:] /= steps
        sums[0].fill_(1)
        good, norm = self.watch.note(sums[1], self.world, enough_room())
        for total in (self.window, self.epoch):
            total += torch.where(good, sums, 0.0)
        if self.state is not None:
            states.copy(self.state, states.join(carried), good)
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
            self.optimizer.found_inf.copy_(~good)  # type: ignore[attr-defined]
        self.optimizer.step()

    def window_means(self) -> tuple[float, list[float]] | None:
        """The measure and the boundary rates since the last call, over all processes.

        None if all updates were skipped, or none was made by gradient.
        """
        made, *sums = mean(self.window, self.world).tolist()
        if made == 0:
            return None
        self.window.zero_()
        self.count_skipped()
        loss, *rates = (total / made for total in sums)
        return self.task.measure(loss), rates

    def count_skipped(self) -> None:
        """Add the updates skipped since the last line of metrics to ``progress``."""
        self.progress.skipped += self.watch.report()

    def changed_detectors(self) -> list[dict[str, Any]]:
        """At the end of an epoch: the detectors that have fallen silent, fire always, or have recovered.

        None after the first epoch, unless it is the last: a detector that is silent there often starts by itself. With
        rate control none within CONTROLLED updates, either.
        """
        updates, _, *sums = mean(self.epoch, self.world).tolist()
        self.epoch.zero_()
        config, p = self.config, self.progress
        early = p.epoch == 1 or (config.detectors.rate_control > 0 and p.step < detectors.CONTROLLED)
        if updates == 0 or (early and p.epoch < config.train.epochs):
            return []
        before = self.progress.conditions or ["alive"] * len(sums)
        rates = [total / updates for total in sums]
        now = [
            detectors.next_condition(rate, old) if free else "alive"
            for rate, old, free in zip(rates, before, self._free())
        ]
        self.progress.conditions = now
        settable = len(sums) if self.model.rnn.settable else 0
        held, biased = bool(config.detectors.rates), bool(config.detectors.bias)
        return [
            {"layer": l, "condition": new, "rate": rate, "message": detectors.advice(l, rate, settable, held, biased)}
            for l, (rate, old, new) in enumerate(zip(rates, before, now), start=1)
            if new != old
        ]

    def _free(self) -> list[bool]:
        """Whether each detector decides by itself; False if the text gives its boundaries."""
        given: Tensor | None = getattr(self.model, "given", None)  # (symbols, detectors), NaN where free
        return [True] * detectors.count(self.model.rnn) if given is None else given.isnan().all(0).tolist()

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Measure the model."""
        with self._validating():
            return self.task.validate(progress)

    @contextlib.contextmanager
    def _validating(self) -> Iterator[None]:
        """Within it the model has the weights to measure and to save as the best, such as their average."""
        with contextlib.ExitStack() as stack:
            for term in self.terms:
                stack.enter_context(term.validating())
            yield

    def judge(self, measure: float) -> bool:
        """Record a validation: True if it is the best. On a plateau the learning rate is divided, or the run ends."""
        best = self.progress.judge(measure, self.config.train)
        self._set_rate()
        return best

    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.progress.rate(self.config.train, self.task.chunks)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a run apart from its weights; a collective call under torchrun."""
        result = {f"window.{rank}": window for rank, window in enumerate(gather(self.window, self.world))}
        result |= {f"epoch.{rank}": epoch for rank, epoch in enumerate(gather(self.epoch, self.world))}
        result["watch"] = self.watch.counts
        result |= self._kept()
        for name, part in states.named(self.state).items():
            result[f"state.{name}"] = torch.cat(gather(part, self.world))
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        for kind, state in random.items():
            drawn = gather(state.to(self.device), self.world)
            result |= {f"random.{kind}.{rank}": part for rank, part in enumerate(drawn)}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                result[f"optimizer.{name}.{key}"] = value
        return result

    def _kept(self) -> dict[str, Tensor]:
        """What the terms keep."""
        return {f"{type(term).__name__.lower()}.{name}": a for term in self.terms for name, a in term.tensors().items()}

    def snapshot(self, *, training: bool) -> Checkpoint:
        """The checkpoint of now: with ``training`` a state to resume from, else the model to use."""
        if training:
            progress = dataclasses.asdict(self.progress)
            return Checkpoint(self.config, self.task.reads, dict(self.model.state_dict()), progress, self.tensors())
        with self._validating():
            weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        return Checkpoint(self.config, self.task.reads, weights)

    def restore(self, saved: Checkpoint) -> None:
        """Return to the state in which ``saved`` was written."""
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
        if progress.chunk >= self.task.chunks:
            raise InputError(f"the checkpoint does not fit this run: it is at chunk {progress.chunk} of an epoch")
        self._check_state(saved.training)
        try:
            self.progress = progress
            self.model.load_state_dict(saved.weights)
            tensors = {name: tensor.to(self.device) for name, tensor in saved.training.items()}
            self.window = tensors[f"window.{self.rank}"]
            self.epoch = tensors[f"epoch.{self.rank}"]
            self.watch.counts = tensors["watch"]
            for name, tensor in self._kept().items():
                tensor.copy_(tensors[name])
            for name, part in states.named(self.state).items():
                part.copy_(tensors[f"state.{name}"][self.rank * len(part) : (self.rank + 1) * len(part)])
            for name, parameter in self.model.named_parameters():
                self.optimizer.state[parameter] = _under(f"optimizer.{name}.", tensors)
            torch.set_rng_state(saved.training[f"random.cpu.{self.rank}"])
            drawn = saved.training.get(f"random.cuda.{self.rank}")
            if self.device.type == "cuda" and drawn is not None:  # it is None if the run began on a CPU
                torch.cuda.set_rng_state(drawn, self.device)
        except (KeyError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the checkpoint does not fit this run: {reason}") from error
        self._apply_changed_settings()
        self._set_rate()

    def _check_state(self, given: dict[str, Tensor]) -> None:
        """Raise InputError unless the state in a checkpoint has the names, shapes and dtypes that this run's has."""
        own = {name: tensor for name, tensor in self.tensors().items() if not name.startswith("optimizer.")}
        needed = {name for name in own if not name.startswith("random.cuda.")}  # which a run on a CPU does not have
        fresh = self.optimizer.new_states() if isinstance(self.optimizer, Muon) else {}
        for name, parameter in self.model.named_parameters():
            adam = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
            optimizer = {f"optimizer.{name}.{key}": a for key, a in fresh.get(parameter, adam).items()}
            own |= optimizer
            needed |= optimizer.keys() & given.keys() and optimizer.keys()  # there is none before the first update
        extra = sorted(name for name in given.keys() - own.keys() if not name.startswith("random.cuda."))
        for name in [*sorted(needed | (given.keys() & own.keys())), *extra]:
            found, wanted = (_kind(tensors.get(name)) for tensors in (given, own))
            if found != wanted:
                raise InputError(f"the checkpoint does not fit this run: {name} must be {wanted}, and is {found}")
            if name.endswith(".step") and not given[name] >= 0:
                raise InputError(
                    f"the checkpoint does not fit this run: {name} must count updates, and is {given[name]}"
                )

    def _apply_changed_settings(self) -> None:
        """After a restore: apply settings that a resumed run may change."""
        p, t = self.progress, self.config.train
        if p.chunk > 0:  # a network without detectors does not store its slope
            self._set_schedules()
        if not t.skip_nonfinite and self.watch.skipped():  # the run skipped updates until now
            self.count_skipped()
        if p.finished is not None:  # epochs, patience or divisions may have been raised
            p.finished = None
            p.apply_limits(t)
        elif t.validate_every == 0 or p.step % t.validate_every == 0:  # otherwise the last validation is still due
            p.end_if_done(t)

    def _set_schedules(self) -> None:
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

    def _set_rate(self) -> None:
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
        if self.config.train.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _kind(tensor: Tensor | None) -> str:
    """The dtype and the shape of a tensor, for messages."""
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _split(batch: tuple[Tensor, ...], parts: int) -> list[tuple[Tensor, ...]]:
    """Equal shares of the sequences of a batch of tensors (T, B, ...) and (B,)."""
    return list(zip(*(a.chunk(parts, dim=min(1, a.dim() - 1)) for a in batch)))
