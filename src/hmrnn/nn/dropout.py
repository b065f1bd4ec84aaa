"""Dropout that leaves engines their speed: masks over weights or over whole sequences, none that change with time.

What is kept is scaled by 1 / (1 - p), so that the expected value stays what it was. Draws come from PyTorch's generator
of the device.
"""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn import checks


def drop_weights(matrix: Tensor, p: float, rows: int) -> Tensor:
    """DropConnect: each number in the first ``rows`` rows is zero with probability ``p``; the other rows stay."""
    keep = torch.ones_like(matrix)
    keep[:rows].bernoulli_(1 - p).div_(1 - p)
    return matrix * keep


def factors(like: Tensor, p: float) -> Tensor:
    """As many as ``like`` has numbers: zero with probability ``p``, else what makes up for it."""
    return torch.ones_like(like).bernoulli_(1 - p).div_(1 - p)


def drop_units(x: Tensor, p: float) -> Tensor:
    """x (T, B, size) without some units of each sequence, the same ones at all time steps."""
    return x * factors(x[0], p)


def probability(name: str, p: float) -> float:
    """``p``, if something is left when that share is dropped."""
    checks.numbers({name: p}, Real)
    if not 0 <= p < 1:
        raise InputError(f"{name} must be at least 0 and less than 1; got {p}")
    return p
