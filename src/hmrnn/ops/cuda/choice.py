"""Where leaving out rows that copy is faster than the dense engine, and how large its logs are.

The rule comes from training steps of three layers measured on an H200 at several sizes and boundary rates; see
results/speed.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hmrnn.ops.cuda.rows import why_not
from hmrnn.ops.interface import Options

LEAST_UNITS = 512 * 1024
"""Batch times units of the narrowest layer from which it is faster."""
MOST_MOVING = 0.53
"""Share of the rows that move up to which it is faster."""


ROOM = 1.15, 0.01
"""Room of a log: so many times the rows that are expected to move, and so large a share of all rows."""


def moving(rates: Sequence[float], flush: bool) -> tuple[float, ...]:
    """The share of the rows that move in each layer above the first, at these rates of independent boundaries."""
    return tuple(below + (1 - below) * own if flush else below for below, own in zip(rates, (*rates[1:], 0.0)))


def room(shares: Sequence[float], rows: int) -> tuple[int, ...]:
    """The number of events that each log has room for, if these shares of the rows are expected to move."""
    return tuple(min(rows, math.ceil(rows * (ROOM[0] * share + ROOM[1]))) for share in shares)


def least_batch(sizes: Sequence[int], options: Options) -> int | None:
    """The smallest batch in which it is faster at the rates in ``options``; None: none, or the rates are unknown."""
    if why_not(options) is not None or not options.rates or len(options.rates) != len(sizes) - 1:
        return None
    share = (1 + sum(moving(options.rates, options.flush))) / len(sizes)
    return -(-LEAST_UNITS // min(sizes)) if share <= MOST_MOVING else None
