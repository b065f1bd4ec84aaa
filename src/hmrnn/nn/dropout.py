"""Dropout with masks that are constant over time, over weights or over the units of a sequence.

Kept values are scaled by 1 / (1 - p), so that the expected value is unchanged. Draws come from torch's generator of the
device.
"""

from __future__ import annotations

import torch
from torch import Tensor


def drop_weights(matrix: Tensor, p: float, rows: int) -> Tensor:
    """DropConnect: ``matrix`` with each number of its first ``rows`` rows set to zero with probability ``p``."""
    keep = torch.ones_like(matrix)
    keep[:rows].bernoulli_(1 - p).div_(1 - p)
    return matrix * keep


def factors(like: Tensor, p: float) -> Tensor:
    """Factors in the shape of ``like``: zero with probability ``p``, else 1 / (1 - p)."""
    return torch.ones_like(like).bernoulli_(1 - p).div_(1 - p)


def drop_units(x: Tensor, p: float) -> Tensor:
    """x (T, B, size) with units of each sequence set to zero, the same ones at all time steps."""
    return x * factors(x[0], p)
