"""Plan and Batches: which sequences of different lengths go into which batch of an epoch, and how they are padded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from hmrnn.config.checks import Count
from hmrnn.nn.checks import argument

_POOL = 32  # batches whose sequences are sorted by length together
_FINEST = 16  # padded lengths are multiples of it


class Plan:
    """The batches of each epoch, all of ``batch_size`` rows.

    Sequences are shuffled into pools, sorted by length within a pool and cut into batches, which are shuffled again;
    ``seed`` and the epoch determine the order. Without a seed every epoch goes from the shortest sequence to the
    longest. Sequences are spread evenly over the batches of an epoch.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int | None = None) -> None:
        argument("batch_size", batch_size, Count)
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self._arranged: tuple[int, list[np.ndarray]] = (-1, [])

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def rows(self, epoch: int, index: int) -> np.ndarray:
        """The sequences of batch ``index`` of an epoch, at most ``batch_size``."""
        if self._arranged[0] != epoch:
            self._arranged = (epoch, self._arrange(epoch))
        return self._arranged[1][index]

    def _arrange(self, epoch: int) -> list[np.ndarray]:
        batches, lengths = len(self), self.lengths
        edges = np.arange(batches + 1) * len(lengths) // batches  # of the batches, in a concatenation of all sequences
        if self.seed is None:
            return np.split(np.argsort(lengths, kind="stable"), edges[1:-1])
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(lengths))
        for pool in np.array_split(np.arange(batches), -(-batches // _POOL)):
            part = order[edges[pool[0]] : edges[pool[-1] + 1]]  # a view, sorted in place
            part[:] = part[np.argsort(lengths[part], kind="stable")]
        arranged = np.split(order, edges[1:-1])
        return [arranged[i] for i in random.permutation(batches)]


def padded_length(length: int, finest: int = _FINEST) -> int:
    """``length`` rounded up to a multiple of ``finest``, one of 8 values per power of two (320, 352, ... 512, ...)."""
    step = max(finest, 1 << max(0, (length - 1).bit_length() - 4))
    return -(-length // step) * step


class Batch(NamedTuple):
    """Sequences side by side, padded with zeros."""

    inputs: np.ndarray
    """(T, B, ...): what is read at each step."""
    targets: np.ndarray
    """(T, B, ...): what follows it."""
    counted: np.ndarray
    """(B,) int64: the number of steps in the loss; 0 for a padding row."""
    rows: np.ndarray
    """(B,) int64: the index of the sequence; -1 for a padding row."""
    conditions: np.ndarray | None
    """(B,) int64 or (B, numbers) float32; zeros in a padding row. None if there are none."""
    texts: np.ndarray | None = None
    """(B, U) int64: what each sequence says; zeros in a padding row. None if that is not read."""


class Batches(ABC):
    """The padded batches of each epoch, all of ``batch_size`` rows, as :class:`Plan` arranges them by ``seed``.

    ``counts`` (n,) are the steps of each sequence; a batch is as long as :func:`padded_length` says. One with fewer
    sequences than rows is completed by padding rows. ``conditions`` (n,) or (n, numbers) and ``texts`` (n, U) are
    encoded.
    """

    def __init__(
        self,
        counts: np.ndarray,
        batch_size: int,
        seed: int | None,
        conditions: np.ndarray | None,
        texts: np.ndarray | None = None,
    ) -> None:
        self.plan, self.conditions, self.texts = Plan(counts, batch_size, seed), conditions, texts

    def __len__(self) -> int:
        return len(self.plan)

    @abstractmethod
    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and the targets of a sequence."""

    def batch(self, epoch: int, index: int) -> Batch:
        """Batch ``index`` of an epoch."""
        chosen, B = self.plan.rows(epoch, index), self.plan.batch_size
        rows, counted = np.full(B, -1), np.zeros(B, np.int64)
        rows[: len(chosen)], counted[: len(chosen)] = chosen, self.plan.lengths[chosen]
        T, pairs = padded_length(int(counted.max())), [self.pair(k) for k in chosen]
        inputs, targets = (np.zeros((T, B, *part.shape[1:]), part.dtype) for part in pairs[0])
        for b, (read, following) in enumerate(pairs):
            inputs[: len(read), b], targets[: len(read), b] = read, following
        return Batch(inputs, targets, counted, rows, *(_rows(a, chosen, B) for a in (self.conditions, self.texts)))


def _rows(values: np.ndarray | None, chosen: np.ndarray, count: int) -> np.ndarray | None:
    """The ``chosen`` rows of an array, followed by zeros; None of None."""
    if values is None:
        return None
    rows = np.zeros((count, *values.shape[1:]), values.dtype)
    rows[: len(chosen)] = values[chosen]
    return rows
