"""Where leaving out rows that copy is faster than the dense engine.

The rule comes from training steps of three layers measured on an H200 at several sizes and boundary rates; see
results/speed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from hmrnn.ops.cuda.rows import why_not
from hmrnn.ops.interface import Options

LEAST_UNITS = 512 * 1024
"""Batch times units of the narrowest layer from which it is faster."""
MOST_MOVING = 0.53
"""Share of the rows that move up to which it is faster."""


def least_batch(sizes: Sequence[int], options: Options) -> int | None:
    """The smallest batch in which it is faster at the rates in ``options``; None: none, or the rates are unknown."""
    if why_not(options) is not None or not options.rates or len(options.rates) != len(sizes) - 1:
        return None
    share = (1 + sum(options.variant.moving(options.rates))) / len(sizes)
    return -(-LEAST_UNITS // min(sizes)) if share <= MOST_MOVING else None
