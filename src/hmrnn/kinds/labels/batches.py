"""Padded batches of labelled sequences, every sequence once per epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.kinds.labels.corpus import Examples
from hmrnn.ops.interface import within
from hmrnn.reading.batches import Plan, padded_length

FINEST = 4
"""If batches are to have few shapes, their numbers of steps are multiples of it."""


class Batch(NamedTuple):
    """Sequences side by side, in arrays or in tensors; padding rows have weight 0."""

    inputs: Any
    """(T, B) int64 or (T, B, channels) float32."""
    lengths: Any
    """(B,) int64, at least 1."""
    targets: Any
    """(N, B) int64; of numbers (N, B, numbers) float32."""
    counted: Any
    """(B,) int64, at least 1: the number of targets."""
    places: Any
    """(N, B) int64: the steps at which targets are read."""
    weights: Any
    """(B,) float32."""

    def on(self, device: torch.device, rows: slice = slice(None)) -> Batch:
        """Some rows of arrays as tensors on a device."""
        return Batch(*(torch.from_numpy(a[..., rows] if a.ndim < 3 else a[:, rows]).to(device) for a in self))

    @property
    def active(self) -> Tensor:
        """(T, B): False in the padding."""
        return within(self.lengths, len(self.inputs))

    @property
    def asked(self) -> Tensor:
        """(N, B): whether there is such a target."""
        return within(self.counted, len(self.targets))


class LabelBatches:
    """The batches of each epoch: sequences of similar length together, in an order that ``seed`` and epoch determine.

    The rows of a batch are a multiple of ``multiple``. With ``alike`` all batches have the same number of rows, and
    their numbers of steps are padded to few values, since a CUDA graph is kept for each shape. ``unknown`` (symbols,)
    is the probability with which each input symbol is read as the one for all others, the last; without it that one
    would never be trained.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        seed: int | None = None,
        multiple: int = 1,
        alike: bool = False,
        unknown: np.ndarray | None = None,
    ) -> None:
        self.examples, self.alike, self.unknown = examples, alike, unknown
        self.plan = Plan(examples.lengths, batch_size, seed)
        largest = -(-len(examples) // len(self))
        self.multiple = -(-largest // multiple) * multiple if alike else multiple

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, epoch: int, index: int) -> Batch:
        """Batch ``index`` of an epoch."""
        batch = pad(self.examples, self.plan.rows(epoch, index), self.multiple, FINEST if self.alike else 1)
        if self.unknown is not None:
            draws = np.random.default_rng([self.plan.seed or 0, epoch, index]).random(batch.inputs.shape)
            batch.inputs[draws < self.unknown[batch.inputs]] = len(self.unknown) - 1
        return batch


def pad(examples: Examples, chosen: np.ndarray, multiple: int = 1, finest: int = 1) -> Batch:
    """The chosen sequences side by side; with ``finest`` above 1 padded as :func:`padded_length` says."""
    e, B = examples, -(-len(chosen) // multiple) * multiple
    counted, lengths = np.ones((2, B), np.int64)
    weights = np.zeros(B, np.float32)
    counted[: len(chosen)] = [len(e.targets[k]) for k in chosen]
    lengths[: len(chosen)] = e.lengths[chosen]
    weights[: len(chosen)] = e.weights[chosen]
    T, N = int(lengths.max()), int(counted.max())
    if finest > 1:
        T, N = padded_length(T, finest), padded_length(N, finest) if N > 1 else 1

    def side_by_side(arrays: list[np.ndarray], steps: int) -> np.ndarray:
        found = np.zeros((steps, B, *arrays[0].shape[1:]), arrays[0].dtype)
        for b, k in enumerate(chosen):
            found[: len(arrays[k]), b] = arrays[k]
        return found

    return Batch(
        side_by_side(e.inputs, T), lengths, side_by_side(e.targets, N), counted, side_by_side(e.places, N), weights
    )
