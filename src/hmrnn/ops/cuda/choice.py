"""Where leaving out rows that copy is faster than the dense engine: a rule from what was measured on an H200.

A training step of three layers was measured at several sizes and boundary rates; see results/speed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from hmrnn.ops.cuda.rows import why_not
from hmrnn.ops.interface import Options

LEAST_UNITS = 512 * 1024
"""Batch times units of the narrowest layer from which it is faster."""
MOST_MOVING = 0.53
"""Share of the rows that move up to which it is faster."""


def moving(rates: Sequence[float], flush: bool) -> float:
    """The share of the rows that move, over all layers, at these boundary rates, if boundaries are independent."""
    total, own = 1.0, (*rates[1:], 0.0)
    for below, above in zip(rates, own):
        total += below + (1 - below) * above if flush else below
    return total / (len(rates) + 1)


def least_batch(sizes: Sequence[int], options: Options) -> int | None:
    """The smallest batch in which it is faster at the rates in ``options``; None: none, or the rates are unknown."""
    if why_not(options) is not None or not options.rates or len(options.rates) != len(sizes) - 1:
        return None
    return -(-LEAST_UNITS // min(sizes)) if moving(options.rates, options.flush) <= MOST_MOVING else None
