"""What the forward pass keeps for its backward pass.

The batch is the last dimension: each gate is then a block of memory of its own, and NumPy is fast on those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops.interface import LayerWeights, Options

LARGE = 1 << 16
"""Elements of a matrix from which torch's product with a vector per sequence is faster than NumPy's."""


class Call(NamedTuple):
    """One call without the tensors that have gradients."""

    options: Options
    slope: float
    noise: Tensor | None  # (T, B, L-1)
    active: Tensor | None  # (T, B); 0 in the padding
    forced: Tensor | None  # (T, B, L-1), NaN: not forced


class Track(NamedTuple):
    """What the forward pass keeps of one layer."""

    hc: Tensor  # (T+1, 2, H, B), h and c, the initial ones first
    s: Tensor  # (T, R, B): f, i, o, g and the detector's s_z
    x: Tensor  # (T, K, B): what [W U V] is multiplied with
    fed: Tensor  # (T, B): z of the layer below, 0 in the padding
    flushed: Tensor  # (T, B): 1 on FLUSH
    z: Tensor  # (T+1, B), the initial z first; empty in the top layer
    gate: Tensor  # (T+1, B) of the top-down input; empty in the top layer
    norm_W: Tensor  # (T, B) with layer norm: the inverse of the standard deviation of W·h
    norm_U: Tensor  # each of these is empty without layer norm and where the layer has no such matrix
    norm_V: Tensor
    norm_c: Tensor  # (T, H+1, B) with layer norm: c normalised, and below it the inverse of its standard deviation


def rows(a: Tensor) -> Tensor:
    """A copy (T, B, n) of ``a`` (T, n, B)."""
    return a.transpose(1, 2).clone(memory_format=torch.contiguous_format)


def centred(w: LayerWeights, name: str) -> Tensor:
    """(4H, size): the gate rows of a matrix less their mean, so that the mean of its product with h is 0."""
    matrix: Tensor = getattr(w, name)[: 4 * w.hidden_size]
    return matrix - matrix.mean(0)


def multiply(matrix: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write matrix (m, n) times x (n, B) to ``out``."""
    if matrix.size < LARGE:
        np.dot(matrix, x, out=out)
    else:
        torch.mm(torch.from_numpy(matrix), torch.from_numpy(x), out=torch.from_numpy(out))
