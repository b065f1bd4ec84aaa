"""What the forward pass of :mod:`hmrnn.ops.small` keeps for its backward pass.

The batch is the last dimension: each gate is then a block of memory of its own, and NumPy is fast on those.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hmrnn.ops.interface import Options


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
    raw_W: Tensor  # (T, B, 4H) with layer norm W·h, U·h and V·h before it; empty without, and where there is none
    raw_U: Tensor
    raw_V: Tensor


def rows(a: Tensor) -> Tensor:
    """A copy (T, B, n) of ``a`` (T, n, B)."""
    return a.transpose(1, 2).clone(memory_format=torch.contiguous_format)
