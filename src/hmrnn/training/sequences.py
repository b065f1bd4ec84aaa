"""SequenceTask: predict every step of sequences from those before it, in bits per step, whatever a step is."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.reading.batches import Batches
from hmrnn.training.padded import PaddedTask

if TYPE_CHECKING:
    from hmrnn.sequences import SequenceCorpus


class SequenceBatches(Batches):
    """Padded batches of encoded sequences (T, ...); each step but the first is predicted."""

    def __init__(self, sequences: Sequence[np.ndarray], batch_size: int, seed: int | None = None) -> None:
        lengths = np.array([len(sequence) for sequence in sequences])
        if not len(lengths) or lengths.min() < 2:
            raise InputError("every sequence needs two steps or more, one to read and one to predict; leave others out")
        super().__init__(lengths - 1, batch_size, seed, None)
        self.sequences = sequences

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.sequences[index][:-1], self.sequences[index][1:]


class SequenceTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in bits per step."""

    def __init__(
        self, config: Config, corpus: SequenceCorpus, model: Any, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        t = config.train
        self.corpus, self.reads = corpus, corpus.spec
        train, valid = ([corpus.spec.encode(one) for one in part] for part in (corpus.train, corpus.valid))
        super().__init__(config, model, SequenceBatches(train, t.batch_size, t.seed), device, rank, world)
        self.valid = SequenceBatches(valid, t.batch_size)
        self.checksum = 0
        for sequence in (*train, *valid):
            self.checksum = zlib.crc32(np.ascontiguousarray(sequence).data, self.checksum)

    def measure(self, loss: float) -> float:
        return loss / math.log(2)

    def describe(self) -> str:
        mean = self.batches.plan.lengths.mean() + 1
        return (
            f"{self.corpus.name}: {len(self.corpus.train):,} sequences of {mean:.0f} {self.reads.unit}s on average to "
            f"train on, {len(self.corpus.valid):,} to validate"
        )
