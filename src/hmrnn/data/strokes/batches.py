"""Padded batches of pen strokes: lines of similar length together, every line once per epoch, few distinct shapes."""

from __future__ import annotations

import dataclasses

import numpy as np

from hmrnn.data.strokes.strokes import FEWEST, Scale, Strokes
from hmrnn.errors import InputError

_POOL = 32  # batches whose lines are sorted by length together
_FINEST = 16  # padded lengths are multiples of it


@dataclasses.dataclass(frozen=True, eq=False)
class StrokeBatch:
    """Normalised lines side by side, padded with zeros."""

    inputs: np.ndarray
    """(T, B, 3) float32: all points of each line but the last."""
    targets: np.ndarray
    """(T, B, 3) float32: all points of each line but the first."""
    lengths: np.ndarray
    """(B,) int64, at least 1: the number of steps that a network reads."""
    counted: np.ndarray
    """(B,) int64: the number of steps in the loss; 0 for a padding row."""
    rows: np.ndarray
    """(B,) int64: the index of the line; -1 for a padding row."""


class StrokeBatches:
    """The batches of each epoch, all of ``batch_size`` rows.

    Lines are shuffled into pools, sorted by length within a pool and cut into batches, which are shuffled again;
    ``seed`` and the epoch determine the order. Without a seed every epoch goes from the shortest line to the longest.

    A batch is as long as its longest line, rounded up to one of ``shapes``, 8 lengths per power of two. Lines are
    spread evenly over the batches of an epoch; a batch with fewer lines than rows is completed by padding rows.
    """

    def __init__(self, strokes: Strokes, scale: Scale, batch_size: int, *, seed: int | None = None) -> None:
        if batch_size < 1:
            raise InputError(f"a batch needs at least 1 row; got {batch_size}")
        if len(strokes) == 0 or strokes.lengths.min() < FEWEST:
            short = [name for name, length in zip(strokes.names, strokes.lengths) if length < FEWEST]
            got = f"line {short[0]} has fewer; leave it out" if short else "there is no line"
            raise InputError(f"batches need lines of at least {FEWEST} points, one to read and one to predict; {got}")
        self.strokes, self.scale, self.batch_size, self.seed = strokes, scale, batch_size, seed
        self.shapes = tuple(sorted({padded_length(n) for n in range(int(strokes.lengths.min()) - 1,
                                                                    int(strokes.lengths.max()))}))  # fmt: skip
        self._plan: tuple[int, list[np.ndarray]] = (-1, [])

    def __len__(self) -> int:
        return -(-len(self.strokes) // self.batch_size)

    def batch(self, epoch: int, index: int) -> StrokeBatch:
        """Batch ``index`` of an epoch."""
        if not 0 <= index < len(self):
            raise InputError(f"batches of an epoch go from 0 to {len(self) - 1}; got index {index}")
        if self._plan[0] != epoch:
            self._plan = (epoch, arrange(self.strokes.lengths, len(self), self.seed, epoch))
        chosen = self._plan[1][index]
        B = self.batch_size
        rows = np.full(B, -1)
        rows[: len(chosen)] = chosen
        counted = np.zeros(B, np.int64)
        counted[: len(chosen)] = self.strokes.lengths[chosen] - 1
        T = padded_length(int(counted.max()))
        inputs, targets = np.zeros((2, T, B, 3), np.float32)
        for b, line in enumerate(chosen):
            steps = self.scale.encode(self.strokes[line])
            inputs[: counted[b], b] = steps[:-1]
            targets[: counted[b], b] = steps[1:]
        return StrokeBatch(inputs, targets, np.maximum(counted, 1), counted, rows)


def arrange(lengths: np.ndarray, batches: int, seed: int | None, epoch: int) -> list[np.ndarray]:
    """The indices of the sequences of each batch of an epoch, as :class:`StrokeBatches` describes it."""
    edges = np.arange(batches + 1) * len(lengths) // batches  # of the batches, in a concatenation of all lines
    if seed is None:
        return np.split(np.argsort(lengths, kind="stable"), edges[1:-1])
    random = np.random.default_rng([seed, epoch])
    lines = random.permutation(len(lengths))
    for pool in np.array_split(np.arange(batches), -(-batches // _POOL)):
        part = lines[edges[pool[0]] : edges[pool[-1] + 1]]  # a view, sorted in place
        part[:] = part[np.argsort(lengths[part], kind="stable")]
    arranged = np.split(lines, edges[1:-1])
    return [arranged[i] for i in random.permutation(batches)]


def padded_length(length: int) -> int:
    """``length`` rounded up to one of 8 values per power of two (320, 352, ... 512, 576, ...)."""
    step = max(_FINEST, 1 << max(0, (length - 1).bit_length() - 4))
    return -(-length // step) * step
