"""Tasks that predict every step of sequences from those before it, each sequence read by itself."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.kind import InputSpec, Progress
from hmrnn.ops import State
from hmrnn.reading.batches import Batches
from hmrnn.reading.conditions import encoded
from hmrnn.reading.score import read_all, to_tensors, unpack
from hmrnn.training.task import Loss, Task, Validation, detected, with_own_inputs


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


class PaddedTask(Task):
    """What tasks share whose sequences are each read from the zero state, side by side in padded batches."""

    capturable = True
    carries_state = False
    offers = frozenset({"surprise", "chances", "hidden"})
    batches: Batches
    valid: Batches
    """The validation part."""

    def start(self) -> None:
        lengths = self.batches.plan.lengths
        self.chunks = len(self.batches)
        self.symbols = float(lengths.sum()) / self.chunks
        self.per_row = self.symbols / self.config.train.batch_size

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        return to_tensors(self.batches.batch(epoch, chunk), self.device, self.rows)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        """Nats per step, by the mean number of steps of a batch, so that every sequence counts as in the measure."""
        inputs, targets, active, condition = unpack(batch, self.config.model)
        inputs = with_own_inputs(self.model, inputs, self.own_share, None, condition)
        # it reads the padding, too, which comes last: a GPU need not wait
        prediction, out, state = network(inputs, condition=condition)
        nats = torch.where(active, -prediction.log_prob(targets), 0.0)
        count = self.per_row * active.shape[1]
        entropy = prediction.entropy().detach() if "entropy" in self.needs else None
        found = detected(out, self.model.rnn, self.needs)
        return Loss(
            nats.sum() / count, state=state, active=active, surprise=nats.detach(), entropy=entropy, divisor=count,
            **found,
        )  # fmt: skip

    def validate(self, progress: Progress = None) -> Validation:
        precision = self.config.train.precision
        found = read_all(self.model, self.valid, self.share, precision=precision, progress=progress)
        steps, (nats,), work = found.result(self.share[1])
        return Validation(self.measure(nats / steps), *work, steps)


class SequenceTask(PaddedTask):
    """A :class:`hmrnn.training.task.Task` measured in bits per step, whatever a step is.

    Of its corpus it takes ``name``, ``spec`` and ``encoded``, as :class:`hmrnn.sequences.SequenceCorpus` has them.
    """

    offers = PaddedTask.offers | {"entropy"}

    def start(self) -> None:
        t, m = self.config.train, self.config.model
        (train, known), (valid, also) = map(self.corpus.encoded, ("train", "valid"))
        given, held = (encoded(rows, m) for rows in (known, also))
        self.batches = SequenceBatches(train, t.batch_size, t.seed, given)
        self.valid = SequenceBatches(valid, t.batch_size, conditions=held)
        self.checksum = zlib.crc32(repr((known, also)).encode())
        for sequence in (*train, *valid):
            self.checksum = zlib.crc32(np.ascontiguousarray(sequence).data, self.checksum)
        super().start()

    def adopt(self, weights: dict[str, Tensor], reads: InputSpec) -> None:
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
