"""StrokeTask: predict the next point of lines of handwriting, each read as a whole from the zero state."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hmrnn.checkpoint import Reads
from hmrnn.config import Config
from hmrnn.data.conditions import encode
from hmrnn.data.strokes.batches import StrokeBatches
from hmrnn.data.strokes.strokes import Scale, StrokeCorpus, counted
from hmrnn.inference.evaluate import evaluate_strokes, to_tensors, unpack
from hmrnn.nn.models import HandwritingModel
from hmrnn.ops import State
from hmrnn.tasks.base import Loss, Validation, boundaries, chances, hidden_before, own_share
from hmrnn.tasks.sampling import with_own_inputs


class StrokeTask:
    """A :class:`hmrnn.tasks.base.Task` measured in nats per sequence: the paper's log-likelihood, negated."""

    unit, per, symbol = "nats", "sequence", "point"
    capturable = True
    carries_state = False

    def __init__(self, config: Config, data: StrokeCorpus, device: torch.device, rank: int = 0, world: int = 1) -> None:
        t = config.train
        self.config, self.corpus, self.device, self.share = config, data, device, (rank, world)
        self.own_share = own_share(config, device)
        self.reads: Reads = data.scale
        self.model = self.make_model(config, data.scale, t.engine).to(device)
        conditions = encode(data.train.conditions or (), config.model) if config.model.conditioned else None
        self.batches = StrokeBatches(data.train, data.scale, t.batch_size, seed=t.seed, conditions=conditions)
        self.chunks = len(self.batches)
        rows = t.batch_size // world
        self.rows = slice(rank * rows, (rank + 1) * rows)
        points = int(data.train.lengths.sum()) - len(data.train)  # that are predicted
        self.symbols = points / self.chunks
        self.per_row = self.symbols / t.batch_size
        self.per_sequence = points / len(data.train)
        given = "".join(f"\n{row}" for row in data.conditions)
        self.checksum = zlib.crc32(f"{data.train.checksum} {data.valid.checksum}{given}".encode())

    @staticmethod
    def make_model(config: Config, scale: Scale, engine: str) -> HandwritingModel:
        return HandwritingModel(config.model, engine=engine, detectors=config.detectors)

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        return to_tensors(self.batches.batch(epoch, chunk), self.device, self.rows)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        """Nats per point, by the mean number of points of a batch, so that every line counts as in the measure."""
        inputs, targets, active, told = unpack(batch, self.config.model)
        if self.own_share is not None:
            inputs = with_own_inputs(self.model, inputs, self.own_share, None, told)
        # it reads the padding, too, which comes last: a GPU need not wait
        prediction, out, state = network(inputs, told=told)
        nats = torch.where(active, -prediction.log_prob(targets), 0.0)
        d, count = self.config.detectors, self.per_row * active.shape[1]
        likely = chances(out, self.model.rnn) if d.needs_probabilities else None
        hidden = hidden_before(out, None) if d.scores else None
        z = boundaries(out, likely, d)
        return Loss(nats.sum() / count, z, state, active, nats.detach(), chances=likely, hidden=hidden, divisor=count)

    def measure(self, loss: float) -> float:
        return loss * self.per_sequence

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        t = self.config.train
        result = evaluate_strokes(
            self.model, self.corpus.valid, self.corpus.scale, batch_size=t.batch_size, precision=t.precision,
            progress=progress, share=self.share,
        )  # fmt: skip
        return Validation(-result.log_likelihood, result.rates, result.updates, result.multiply_adds, result.sequences)

    def describe(self) -> str:
        train, valid = self.corpus.train, self.corpus.valid
        count = len(self.corpus.skipped)
        skipped = f"; {counted(count, 'file')} could not be read" if count else ""
        return (
            f"{self.corpus.name}: {len(train):,} lines of {train.lengths.mean():.0f} points on average to train on, "
            f"{len(valid):,} to validate{skipped}"
        )
