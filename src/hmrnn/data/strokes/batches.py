"""Padded batches of pen strokes: lines of similar length together, every line once per epoch, few distinct shapes."""

from __future__ import annotations

import dataclasses

import numpy as np

from hmrnn.data.plan import Plan, padded_length
from hmrnn.data.strokes.strokes import FEWEST, Scale, Strokes
from hmrnn.errors import InputError


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
    conditions: np.ndarray | None = None
    """(B,) int64 or (B, numbers) float32: the conditions; zeros in a padding row."""


class StrokeBatches:
    """The batches of each epoch, all of ``batch_size`` rows.

    :class:`hmrnn.data.plan.Plan` arranges them by ``seed``. A batch is as long as its longest line, rounded up to one
    of ``shapes``, 8 lengths per power of two. A batch with fewer lines than rows is completed by padding rows.
    ``conditions`` (n,) or (n, numbers) are the encoded conditions of the lines.
    """

    def __init__(
        self,
        strokes: Strokes,
        scale: Scale,
        batch_size: int,
        *,
        seed: int | None = None,
        conditions: np.ndarray | None = None,
    ) -> None:
        self.plan = Plan(strokes.lengths, batch_size, seed)
        if len(strokes) == 0 or strokes.lengths.min() < FEWEST:
            short = [name for name, length in zip(strokes.names, strokes.lengths) if length < FEWEST]
            got = f"line {short[0]} has fewer; leave it out" if short else "there is no line"
            raise InputError(f"batches need lines of at least {FEWEST} points, one to read and one to predict; {got}")
        self.strokes, self.scale, self.batch_size, self.conditions = strokes, scale, batch_size, conditions
        self.shapes = tuple(sorted({padded_length(n) for n in range(int(strokes.lengths.min()) - 1,
                                                                    int(strokes.lengths.max()))}))  # fmt: skip

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, epoch: int, index: int) -> StrokeBatch:
        """Batch ``index`` of an epoch."""
        chosen = self.plan.rows(epoch, index)
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
        conditions = None
        if self.conditions is not None:
            conditions = np.zeros((B, *self.conditions.shape[1:]), self.conditions.dtype)
            conditions[: len(chosen)] = self.conditions[chosen]
        return StrokeBatch(inputs, targets, np.maximum(counted, 1), counted, rows, conditions)
