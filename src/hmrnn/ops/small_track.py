"""What the forward pass of :mod:`hmrnn.ops.small` keeps for its backward pass."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from hmrnn.ops.interface import Options


class Call(NamedTuple):
    """One call without the tensors that have gradients."""

    options: Options
    slope: float
    noise: Tensor | None  # (T, B, L-1)
    active: Tensor | None  # (T, B, 1); 0 in the padding
    forced: Tensor | None  # (T, B, L-1), NaN: not forced


class Track(NamedTuple):
    """What the forward pass keeps of one layer."""

    h: Tensor  # (T+1, B, H), the initial h first
    c: Tensor  # (T+1, B, H)
    s: Tensor  # (T, B, R): f, i, o, g and the detector's s_z
    fed: Tensor  # (T, B, 1): z of the layer below, 0 in the padding
    flushed: Tensor  # (T, B, 1): 1 on FLUSH
    z: Tensor  # (T+1, B, 1), the initial z first; empty in the top layer
    gate: Tensor  # (T+1, B, 1) of the top-down input; empty in the top layer
    raw_W: Tensor  # (T, B, 4H) with layer norm W·h, U·h and V·h before it; empty without, and where there is none
    raw_U: Tensor
    raw_V: Tensor
