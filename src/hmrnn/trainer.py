"""Trainer: model, optimizer, text and progress of a run; one update, one validation, and what going on later takes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hmrnn.boundary import annealed_slope
from hmrnn.checkpoint import Checkpoint
from hmrnn.config import Config
from hmrnn.data.text import Corpus
from hmrnn.errors import InputError
from hmrnn.evaluate import Evaluation, evaluate
from hmrnn.models import LanguageModel
from hmrnn.ops import State, choose_engine


@dataclasses.dataclass
class Progress:
    """Where a run stands; with the tensors of :meth:`Trainer.tensors` it is all that going on exactly needs."""

    epoch: int = 0
    chunk: int = 0
    """Chunks of the current epoch that are done."""
    step: int = 0
    """Updates made."""
    learning_rate: float = 0.0
    divisions: int = 0
    """Times the rate has been divided."""
    stale: int = 0
    """Validations since the best one."""
    best_bits: float | None = None
    best_step: int = 0
    window_steps: int = 0
    """Updates since the last line of metrics."""
    seconds: float = 0.0
    """Time spent in training, over all sittings."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl when this was written; later lines belong to steps that will be done again."""
    corpus: int = 0
    """CRC-32 of the training and validation parts: a run can only go on with the text it began with."""
    finished: str | None = None
    """Why the run ended, once it has."""


class Streams:
    """A text cut into ``batch_size`` equal parts that are read side by side, ``length`` symbols at a time."""

    def __init__(self, symbols: np.ndarray, batch_size: int, length: int, rows: slice, device: torch.device) -> None:
        self.length = length
        per_stream = (len(symbols) - 1) // batch_size
        self.chunks = per_stream // length
        if self.chunks < 1:
            raise InputError(
                f"the training part holds {len(symbols)} symbols, but {batch_size} streams of {length} need at least "
                f"{batch_size * length + 1}; give more text or lower train.batch_size or train.length"
            )
        self.first = (np.arange(batch_size) * per_stream)[rows] + np.arange(length)[:, None]  # (T, B): chunk 0
        self.symbols, self.on_gpu = symbols, None
        if device.type == "cuda":  # the text itself lives there: a chunk costs no copy from the host
            kind = np.uint8 if symbols.dtype == np.uint8 else np.int32
            self.on_gpu = torch.from_numpy(symbols.astype(kind)).to(device), torch.from_numpy(self.first).to(device)

    def __getitem__(self, chunk: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (T, B) of a chunk."""
        if self.on_gpu is not None:
            symbols, first = self.on_gpu
            at_gpu = first + chunk * self.length
            return symbols[at_gpu].long(), symbols[at_gpu + 1].long()
        at = self.first + chunk * self.length
        inputs, targets = (torch.from_numpy(self.symbols[at + k].astype(np.int64)) for k in (0, 1))
        return inputs, targets


class Trainer:
    """A run: model, optimizer, data and progress. ``train`` drives it."""

    def __init__(self, config: Config, corpus: Corpus, device: torch.device, rank: int = 0, world: int = 1) -> None:
        t = config.train
        if t.batch_size % (world * t.accumulate):
            raise InputError(
                f"train.batch_size {t.batch_size} must be a multiple of processes x train.accumulate "
                f"= {world} x {t.accumulate}"
            )
        self.config, self.corpus, self.device, self.rank, self.world = config, corpus, device, rank, world
        torch.manual_seed(t.seed)
        self.model = LanguageModel(len(corpus.vocabulary), config.model, engine=t.engine).to(device)
        torch.manual_seed(t.seed + 1 + rank)  # every process makes its own draws
        self.network = DistributedDataParallel(self.model) if world > 1 else self.model
        on_gpu: dict[str, Any] = {"fused": True, "capturable": True} if device.type == "cuda" else {}
        rate = torch.tensor(t.learning_rate, device=device) if on_gpu else t.learning_rate
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, **on_gpu)
        self.captured = CapturedUpdate(self.update) if device.type == "cuda" and world == 1 else None
        rows = t.batch_size // world
        self.streams = Streams(corpus.train, t.batch_size, t.length, slice(rank * rows, (rank + 1) * rows), device)
        self.state: State = self.model.rnn.initial_state(rows)
        checksum = zlib.crc32(corpus.valid.data, zlib.crc32(corpus.train.data))
        self.progress = Progress(learning_rate=t.learning_rate, corpus=checksum)
        self.window = torch.zeros(config.model.num_layers, dtype=torch.float64, device=device)  # loss, boundary rates

    @property
    def engine(self) -> str:
        return choose_engine(self.model.rnn.engine, self.device, self.model.rnn.options())

    def step(self) -> None:
        """The next update: the next chunk of every stream."""
        p, t = self.progress, self.config.train
        if p.chunk == 0:
            for a in (*self.state.h, *self.state.c, self.state.z):
                a.zero_()
            self.model.rnn.slope = annealed_slope(p.epoch, t.slope_rate, t.slope_max)
        if t.cool_down > 0:
            self._set_rate()
        (self.captured or self.update)(*self.streams[p.chunk])
        p.step += 1
        p.window_steps += 1
        p.chunk += 1
        if p.chunk == self.streams.chunks:
            p.epoch, p.chunk = p.epoch + 1, 0

    def update(self, inputs: Tensor, targets: Tensor) -> None:
        """Forward, backward, clipping and Adam for a chunk (T, B), in ``accumulate`` parts; the state is carried over.

        Reads and writes tensors that stay where they are, and never waits for a GPU, so that it can be captured.
        """
        t = self.config.train
        self.optimizer.zero_grad()
        parts = zip(*(a.chunk(t.accumulate, dim=1) for a in (inputs, targets)), _split(self.state, t.accumulate))
        carried = []
        for k, (x, y, state) in enumerate(parts):
            last = k == t.accumulate - 1
            with self._sync(last), self._autocast():
                logits, out, state = self.network(x, state)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten()) / t.accumulate
            with self._sync(last):
                loss.backward()
            carried.append(state.detach())
            rates = out.boundaries.detach().mean((0, 1)) / t.accumulate
            self.window += torch.cat([loss.detach()[None], rates]).double()
        _copy(self.state, _join(carried))
        if t.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), t.clip_norm)
        self.optimizer.step()

    def window_means(self) -> tuple[float, list[float]]:
        """Bits per symbol and boundary rates since the last call, averaged over processes."""
        if self.world > 1:
            dist.all_reduce(self.window)
        loss, *rates = (self.window / (self.world * max(1, self.progress.window_steps))).tolist()
        self.window.zero_()
        self.progress.window_steps = 0
        return loss / math.log(2), rates

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Evaluation:
        t = self.config.train
        symbols = self.corpus.valid[: t.validation_symbols or None]
        return evaluate(
            self.model, symbols, streams=t.batch_size, warmup=t.length, chunk=t.length, precision=t.precision,
            progress=progress, share=(self.rank, self.world),
        )  # fmt: skip

    def judge(self, bits: float) -> bool:
        """Take note of a validation: True if it is the best; divides the rate, or ends the run, on a plateau."""
        p, t = self.progress, self.config.train
        best = p.best_bits is None or bits < p.best_bits - t.min_improvement
        if best:
            p.best_bits, p.best_step, p.stale = bits, p.step, 0
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
            p.finished = f"all {t.epochs} epochs are done"

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a run beside its weights; a collective call under torchrun."""
        result = {f"window.{rank}": window for rank, window in enumerate(_gather(self.window, self.world))}
        for kind, group in (("h", self.state.h), ("c", self.state.c), ("z", (self.state.z,))):
            for l, part in enumerate(group):
                result[f"state.{kind}.{l}"] = torch.cat(_gather(part, self.world))
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
        corpus = saved.progress.get("corpus"), saved.vocabulary
        if corpus != (self.progress.corpus, self.corpus.vocabulary):
            raise InputError(
                "the training or validation text is not the one this run began with; bring that text back, or start "
                "a new run"
            )
        made_by = sum(name.startswith("random.cpu.") for name in saved.training)
        if made_by != self.world:
            raise InputError(
                f"this run was made by {made_by} process(es) and can only go on with as many; got {self.world}"
            )
        try:
            self.progress = Progress(**saved.progress)
            self.model.load_state_dict(saved.weights)
            tensors = {name: tensor.to(self.device) for name, tensor in saved.training.items()}
            self.window = tensors[f"window.{self.rank}"]
            rows = slice(self.rank * len(self.state.z), (self.rank + 1) * len(self.state.z))
            layers = range(self.config.model.num_layers)
            h, c = (tuple(tensors[f"state.{kind}.{l}"][rows] for l in layers) for kind in "hc")
            _copy(self.state, State(h, c, tensors["state.z.0"][rows]))
            for name, parameter in self.model.named_parameters():
                prefix = f"optimizer.{name}."
                self.optimizer.state[parameter] = {
                    key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)
                }
            torch.set_rng_state(saved.training[f"random.cpu.{self.rank}"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(saved.training[f"random.cuda.{self.rank}"], self.device)
        except (KeyError, TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the checkpoint does not fit this run: {reason}") from error
        self._set_rate()
        if self.progress.finished is not None:  # epochs, patience or divisions may have been raised since
            self.progress.finished = None
            self._apply_limits()

    def snapshot(self, *, training: bool) -> Checkpoint:
        """What is written to disk now."""
        weights = dict(self.model.state_dict())
        if not training:
            return Checkpoint(self.config, self.corpus.vocabulary, weights)
        return Checkpoint(
            self.config, self.corpus.vocabulary, weights, dataclasses.asdict(self.progress), self.tensors()
        )

    def rate(self) -> float:
        """The learning rate of the next update."""
        p, t = self.progress, self.config.train
        total = t.epochs * self.streams.chunks
        left = (total - p.step) / (t.cool_down * total) if t.cool_down > 0 else 1.0
        return p.learning_rate * min(1.0, max(0.0, left))

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

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.train.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


class CapturedUpdate:
    """An update as one CUDA graph: a few are run as they are, the rest replay the capture of the next one."""

    WARM_UP = 3

    def __init__(self, update: Callable[[Tensor, Tensor], None]) -> None:
        self.update, self.calls = update, 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: tuple[Tensor, Tensor]

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        if self.graph is None and self.calls < self.WARM_UP:
            self.calls += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):  # gradients must be met first on the stream of the capture
                self.update(inputs, targets)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.graph is None:
            self.static = inputs.clone(), targets.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.update(*self.static)
        for static, now in zip(self.static, (inputs, targets)):
            static.copy_(now)
        self.graph.replay()


def _gather(part: Tensor, world: int) -> list[Tensor]:
    if world == 1:
        return [part]
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part.contiguous())
    return parts


def _split(state: State, parts: int) -> list[State]:
    h, c = (list(zip(*(a.chunk(parts) for a in group))) for group in (state.h, state.c))
    return [State(*args) for args in zip(h, c, state.z.chunk(parts))]


def _copy(target: State, source: State) -> None:
    for mine, theirs in zip((*target.h, *target.c, target.z), (*source.h, *source.c, source.z)):
        mine.copy_(theirs)


def _join(states: list[State]) -> State:
    h, c = (tuple(torch.cat(parts) for parts in zip(*(getattr(s, kind) for s in states))) for kind in "hc")
    return State(h, c, torch.cat([s.z for s in states]))
