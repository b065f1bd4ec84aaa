"""A series whose two levels are known, and small settings, for tests of HMSegmenter."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALL: dict[str, Any] = {"hidden_size": 6, "updates": 4, "batch_size": 4, "length": 8}


def two_levels(steps: int, seed: int) -> tuple[np.ndarray, list[int], list[int]]:
    """A series of 3 channels, the ends of its segments and of its regimes.

    A segment lasts 6 to 10 steps, and the first channel stands at -1 or 1 in turn; a regime lasts 3 to 5 segments, and
    the other two channels stand at (1, -1) or (-1, 1) in turn. All with noise of deviation 0.15.
    """
    rng = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    segments, regimes = [], []
    sign = side = 1
    while len(rows) < steps:
        side = -side
        for _ in range(rng.integers(3, 6)):
            sign = -sign
            rows += [np.array([sign, side, -side], float)] * int(rng.integers(6, 11))
            segments.append(len(rows))
        regimes.append(len(rows))
    x = np.stack(rows)[:steps]
    inside = [[end for end in ends if end < steps] for ends in (segments, regimes)]
    return x + 0.15 * rng.standard_normal(x.shape), inside[0], inside[1]
