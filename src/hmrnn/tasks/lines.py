"""LineTask: predict the symbols and the end of lines of text, each read by itself."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hmrnn.checkpoint import Reads
from hmrnn.config import Config
from hmrnn.data.text.corpus import Corpus
from hmrnn.data.text.lines import LineBatches, end_symbol, split_lines
from hmrnn.inference.evaluate import evaluate_lines, to_tensors, unpack
from hmrnn.nn.distributions import Categorical
from hmrnn.ops import State
from hmrnn.tasks.base import Loss, Validation, boundaries, chances, hidden_before, own_share
from hmrnn.tasks.sampling import with_own_inputs
from hmrnn.tasks.text import TextTask


class LineTask:
    """A :class:`hmrnn.tasks.base.Task` measured in bits per symbol, line ends included."""

    unit = "bits"
    capturable = True
    carries_state = False
    make_model = staticmethod(TextTask.make_model)

    def __init__(self, config: Config, data: Corpus, device: torch.device, rank: int = 0, world: int = 1) -> None:
        t = config.train
        self.config, self.corpus, self.device, self.share = config, data, device, (rank, world)
        self.own_share = own_share(config, device)
        self.reads: Reads = data.vocabulary
        self.per = self.symbol = data.vocabulary.unit
        self.model = self.make_model(config, data.vocabulary, t.engine).to(device)
        self.lines, self.end = split_lines(data), end_symbol(data.vocabulary)
        train = self.lines["train"]
        self.batches = LineBatches(train, self.end, config.model, t.batch_size, seed=t.seed)
        self.chunks = len(self.batches)
        rows = t.batch_size // world
        self.rows = slice(rank * rows, (rank + 1) * rows)
        self.symbols: float = train.lengths.sum() / self.chunks
        self.per_row = self.symbols / t.batch_size
        given = "\n".join(data.conditions).encode()
        self.checksum = zlib.crc32(data.valid.data, zlib.crc32(data.train.data, zlib.crc32(given)))

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        return to_tensors(self.batches.batch(epoch, chunk), self.device, self.rows)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        """Nats per symbol, by the mean number of symbols of a batch, so that every symbol counts as in the measure."""
        inputs, targets, active, told = unpack(batch, self.config.model)
        if self.own_share is not None:
            inputs = with_own_inputs(self.model, inputs, self.own_share, None, told)
        logits, out, state = network(inputs, told=told)
        prediction = Categorical(logits)
        nats = torch.where(active, -prediction.log_prob(targets), 0.0)
        d, count = self.config.detectors, self.per_row * active.shape[1]
        expected = prediction.entropy().detach() if d.needs_entropy else None
        likely = chances(out, self.model.rnn) if d.needs_probabilities else None
        hidden = hidden_before(out, None) if d.scores else None
        z = boundaries(out, likely, d)
        return Loss(nats.sum() / count, z, state, active, nats.detach(), expected, likely, hidden, count)

    def measure(self, loss: float) -> float:
        return loss / math.log(2)

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        t = self.config.train
        result = evaluate_lines(
            self.model, self.lines["valid"], self.end, batch_size=t.batch_size, precision=t.precision,
            progress=progress, share=self.share,
        )  # fmt: skip
        return Validation(result.bits, result.rates, result.updates, result.multiply_adds, result.symbols)

    def describe(self) -> str:
        train, valid = self.lines["train"], self.lines["valid"]
        return (
            f"{self.corpus.name}: {len(train):,} lines of {train.lengths.mean():.0f} symbols on average to train on, "
            f"{len(valid):,} to validate, {len(self.corpus.vocabulary)} distinct symbols"
        )
