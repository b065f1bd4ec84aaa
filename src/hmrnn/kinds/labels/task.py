"""LabelledTask: predict the labels, the tags, the numbers or the second sequences of labelled sequences."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from hmrnn.kind import Progress
from hmrnn.kinds.labels.batches import Batch, LabelBatches
from hmrnn.kinds.labels.corpus import LabelCorpus
from hmrnn.kinds.labels.evaluate import evaluate_labelled
from hmrnn.kinds.labels.networks import SequenceModel
from hmrnn.kinds.labels.settings import PooledModelConfig
from hmrnn.training.task import Loss, Task, Validation, detected

_RARE = 0.25  # a symbol seen n times is read as an unknown one with probability 0.25 / (0.25 + n)


class LabelledTask(Task):
    """A :class:`hmrnn.training.task.Task` measured in nats per label, tag, symbol to write, or answer in numbers."""

    offers = frozenset({"chances"})
    carries_state = False

    corpus: LabelCorpus
    model: SequenceModel

    def start(self) -> None:
        t, m, data = self.config.train, self.config.model, self.corpus
        self.capturable = not (isinstance(m, PooledModelConfig) and m.read_out == "tree")  # a tree decides shapes
        seen = data.spec.counts(data.train.inputs)
        self.batches = LabelBatches(
            data.train, t.batch_size, seed=t.seed, multiple=t.accumulate * self.share[1],
            alike=self.capturable and self.device.type == "cuda",
            unknown=None if seen is None else np.where(seen > 0, _RARE / (_RARE + seen), 0.0),
        )  # fmt: skip
        self.chunks = len(self.batches)
        self.symbols = float(data.train.lengths.sum()) / self.chunks
        counted = np.array([len(one) for one in data.train.targets])
        self.per_row = float((counted * data.train.weights).sum()) / len(counted)
        self.checksum = zlib.crc32(f"{data.train.checksum} {data.valid.checksum}".encode())

    def batch(self, epoch: int, chunk: int) -> Batch:
        whole, (rank, world) = self.batches.batch(epoch, chunk), self.share
        rows = len(whole.weights) // world
        return whole.on(self.device, slice(rank * rows, (rank + 1) * rows))

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: Any) -> Loss:
        whole = Batch(*batch)
        judged = network(*batch)
        value = (judged.nats * whole.weights).sum() / (self.per_row * len(whole.weights))
        found = detected(judged.out, self.model.rnn, self.needs)
        return Loss(value, state=judged.state, active=whole.active & (whole.weights > 0), **found)

    def measure(self, loss: float) -> float:
        return loss

    def validate(self, progress: Progress = None) -> Validation:
        t = self.config.train
        found, squares = evaluate_labelled(
            self.model, self.corpus.valid, batch_size=t.batch_size, precision=t.precision, progress=progress,
            share=self.share,
        )  # fmt: skip
        return dataclasses.replace(found, measure=self.model.fit_deviation(squares)) if squares else found

    def describe(self) -> str:
        return self.corpus.describe()
