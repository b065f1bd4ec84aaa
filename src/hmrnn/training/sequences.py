"""SequenceTask: predict every step of sequences from those before it, in bits per step, whatever a step is."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec
from hmrnn.reading.batches import Batches
from hmrnn.reading.conditions import encoded
from hmrnn.training.padded import PaddedTask


class SequenceBatches(Batches):
    """Padded batches of encoded sequences (T, ...); each step but the first is predicted."""

    def __init__(
        self,
        sequences: Sequence[np.ndarray],
        batch_size: int,
        seed: int | None = None,
        conditions: np.ndarray | None = None,
    ) -> None:
        lengths = np.array([len(sequence) for sequence in sequences])
        if not len(lengths) or lengths.min() < 2:
            raise InputError("every sequence needs two steps or more, one to read and one to predict; leave others out")
        super().__init__(lengths - 1, batch_size, seed, conditions)
        self.sequences = sequences

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        steps = self.sequences[index]
        steps = steps.astype(np.int64) if steps.dtype.kind == "u" else steps  # symbols in few bytes
        return steps[:-1], steps[1:]


class SequenceTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in bits per step.

    Of its corpus it takes ``name``, ``spec`` and ``encoded``, as :class:`hmrnn.sequences.SequenceCorpus` has them.
    """

    offers = PaddedTask.offers | {"entropy"}

    def __init__(
        self,
        config: Config,
        corpus: Any,
        model: Any,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        t = config.train
        self.corpus, self.reads = corpus, corpus.spec
        (train, known), (valid, also) = map(corpus.encoded, ("train", "valid"))
        given, held = (encoded(rows, config.model) for rows in (known, also))
        super().__init__(config, model, SequenceBatches(train, t.batch_size, t.seed, given), device, rank, world)
        self.valid = SequenceBatches(valid, t.batch_size, conditions=held)
        self.checksum = zlib.crc32(repr((known, also)).encode())
        for sequence in (*train, *valid):
            self.checksum = zlib.crc32(np.ascontiguousarray(sequence).data, self.checksum)

    def adopt(self, weights: dict[str, torch.Tensor], reads: InputSpec) -> None:
        if reads != self.reads:
            raise RuntimeError(f"it reads {reads.describe()}, and the data hold {self.reads.describe()}, or others")
        super().adopt(weights, reads)

    def measure(self, loss: float) -> float:
        return loss / math.log(2)

    def describe(self) -> str:
        train, valid = self.batches.plan.lengths, self.valid.plan.lengths
        return (
            f"{self.corpus.name}: {len(train):,} sequences of {train.mean() + 1:.0f} {self.reads.unit}s on average to "
            f"train on, {len(valid):,} to validate"
        )
