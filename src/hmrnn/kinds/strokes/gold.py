"""Segment ends that a model found in handwriting, scored against the ends of strokes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hmrnn.analysis.scores import Row, compare, ends_of
from hmrnn.analysis.segmentation import Segmentation


def pen_ups(steps: np.ndarray) -> np.ndarray:
    """Where strokes end in a line (T, 3), as ``Segmentation.ends`` counts: the number of points before the cut."""
    return ends_of(steps[:, 2] > 0.5)


def against_pen_ups(found: Sequence[Segmentation], lines: Sequence[np.ndarray]) -> list[Row]:
    """The segment ends of every level in lines, and those of the baselines, against the ends of pen strokes."""
    ends = [[one.ends(level) for one in found] for level in range(1, found[0].levels + 1)]
    lifted = {"where the pen was lifted": [*map(pen_ups, lines)]}
    return compare(ends, lifted, [*map(len, lines)], [np.asarray(one.bits) for one in found])
