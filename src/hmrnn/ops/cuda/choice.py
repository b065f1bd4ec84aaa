"""Where leaving out rows that copy is faster than the dense engine: a rule from what was measured on an H200.

A training step of three layers was measured at several sizes and boundary rates; see results/speed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from hmrnn.ops.interface import Options

PAYS = ((512 * 1024, 0.53),)
"""Batch times units of the narrowest layer, from where rows pay, up to which share of the rows moves."""


def moving(rates: Sequence[float], flush: bool) -> float:
    """The share of the rows that move, over all layers, at these boundary rates, if boundaries are independent."""
    total, own = 1.0, (*rates[1:], 0.0)
    for below, above in zip(rates, own):
        total += below + (1 - below) * above if flush else below
    return total / (len(rates) + 1)


def least_batch(sizes: Sequence[int], options: Options) -> int | None:
    """The smallest batch in which rows pay at the rates in ``options``; None: there is none, or rates are not known."""
    if len(options.rates) != len(sizes) - 1 or not options.rates:
        return None
    share = moving(options.rates, options.flush)
    found = [-(-rows // min(sizes)) for rows, limit in PAYS if share <= limit]
    return min(found, default=None)
