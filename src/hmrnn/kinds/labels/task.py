"""LabelledTask: predict the labels, the tags, the numbers or the second sequences of labelled sequences."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hmrnn.checkpoint import Reads
from hmrnn.config import Config, ModelConfig
from hmrnn.errors import InputError
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import LabelCorpus
from hmrnn.kinds.labels.evaluate import evaluate_labelled
from hmrnn.kinds.labels.labelling import Labelling, counts
from hmrnn.kinds.labels.networks import (
    ClassifierModel,
    GaussianModel,
    RegressorModel,
    SequenceModel,
    StepRegressorModel,
    TaggerModel,
    flat_directions,
)
from hmrnn.kinds.labels.transducer import TransducerModel
from hmrnn.training.task import Loss, Validation, chances

PER = {"labels": "sequence", "tags": "tag", "pairs": "symbol", "numbers": "answer", "series": "forecast"}
_MODELS: dict[str, Any] = {
    "labels": ClassifierModel, "tags": TaggerModel, "pairs": TransducerModel, "numbers": RegressorModel,
    "series": StepRegressorModel,
}  # fmt: skip
_RARE = 0.25  # a symbol seen n times is read as an unknown one with probability 0.25 / (0.25 + n)


class LabelledTask:
    """A :class:`hmrnn.training.task.Task` measured in nats per label, tag, symbol to write, or answer in numbers."""

    unit = "nats"
    carries_state = False
    own_share: Tensor | None = None

    def __init__(self, config: Config, data: LabelCorpus, device: torch.device, rank: int = 0, world: int = 1) -> None:
        t = config.train
        self.config, self.corpus, self.device, self.share = config, data, device, (rank, world)
        self.reads: Reads = data.reads
        self.per, self.symbol = PER[data.reads.modality], data.reads.unit
        self.model = self.make_model(config, data.reads, t.engine).to(device)
        self.capturable = config.model.read_out != "tree"  # a tree decides shapes
        alike = self.capturable and device.type == "cuda"
        seen = counts(data.reads, data.train.inputs)
        unknown = None if seen is None else np.where(seen > 0, _RARE / (_RARE + seen), 0.0)
        self.batches = LabelBatches(
            data.train, t.batch_size, seed=t.seed, multiple=t.accumulate * world,
            alike=alike, unknown=unknown,
        )  # fmt: skip
        self.chunks = len(self.batches)
        self.symbols = float(data.train.lengths.sum()) / self.chunks
        counted = np.array([len(one) for one in data.train.targets])
        self.per_row = float((counted * data.train.weights).sum()) / len(counted)
        self.checksum = zlib.crc32(f"{data.train.checksum} {data.valid.checksum}".encode())

    @staticmethod
    def make_model(config: Config, reads: Labelling, engine: str) -> SequenceModel:
        kind, m = _MODELS[reads.modality], config.model
        if reads.numbers is not None and reads.numbers.steps:
            kind = StepRegressorModel
            if (m.read_out, m.attend) != (ModelConfig.read_out, ModelConfig.attend):
                raise InputError(
                    "model.read_out and model.attend are for numbers of whole sequences; that of a step is read there, "
                    "so leave them out"
                )
        model: SequenceModel = kind(
            reads.size, bool(reads.symbols), reads.outputs, config.model, engine=engine, detectors=config.detectors
        )
        return model

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        whole = self.batches.batch(epoch, chunk)
        rank, world = self.share
        rows = len(whole.weights) // world
        mine = slice(rank * rows, (rank + 1) * rows)
        return tuple(torch.from_numpy(a[..., mine] if a.ndim < 3 else a[:, mine]).to(self.device) for a in whole)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: Any) -> Loss:
        inputs, lengths, targets, counted, places, weights = batch
        judged = network(inputs, lengths, targets, counted, places)
        active = (torch.arange(len(inputs), device=inputs.device)[:, None] < lengths) & (weights > 0)
        out = flat_directions(judged.out)
        likely = chances(out, self.model.rnn) if self.config.detectors.needs_probabilities else None
        value = (judged.nats * weights).sum() / (self.per_row * len(weights))
        return Loss(value, out.boundaries, judged.state, active, chances=likely)

    def measure(self, loss: float) -> float:
        return loss

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        t = self.config.train
        result = evaluate_labelled(
            self.model, self.corpus.valid, batch_size=t.batch_size, precision=t.precision, progress=progress,
            share=self.share,
        )  # fmt: skip
        nats = self.model.fit_deviation(result.squares) if isinstance(self.model, GaussianModel) else result.nats
        return Validation(nats, *result.work, result.targets, result.error)

    def describe(self) -> str:
        return self.corpus.describe()
