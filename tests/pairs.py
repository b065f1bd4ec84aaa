"""All-pairs covers: few combinations of options that still hold every pair of values of any two options.

A fault mostly needs one or two options together, and these meet in a cover, which is far smaller than the full grid.
With HMRNN_FULL_GRIDS=1 (as ``make stress`` sets it) the same tests run the full grid.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from hmrnn.ops.interface import TOP_DOWN

FULL = os.environ.get("HMRNN_FULL_GRIDS") == "1"
CELLS: list[dict[str, Any]] = [
    {"flush": flush, "top_down": top_down, "copy": copy}
    for flush, top_down, copy in itertools.product((True, False), TOP_DOWN, (True, False))
]
"""Every cell that reads and moves in another way."""


def grid(*options: Sequence[Any], strength: int = 2, full: bool = FULL) -> list[tuple[Any, ...]]:
    """Combinations of one value per option: a cover of all pairs (triples with ``strength`` 3), or all of them.

    Greedy and deterministic: the combination that holds the most groups of values not yet covered comes next, the
    first of them in the order of the full grid.
    """
    product = list(itertools.product(*(range(len(values)) for values in options)))
    chosen = product if full or len(options) <= strength else []
    groups = {combination: _groups(combination, strength) for combination in product}
    left = set().union(*groups.values()) if not chosen else set()
    while left:
        best = max(product, key=lambda combination: len(groups[combination] & left))
        chosen.append(best)
        left -= groups[best]
    return [tuple(values[k] for values, k in zip(options, combination)) for combination in sorted(chosen)]


def _groups(combination: tuple[int, ...], strength: int) -> set[tuple[tuple[int, int], ...]]:
    """The sets of ``strength`` (option, value) that a combination holds."""
    return set(itertools.combinations(enumerate(combination), strength))
