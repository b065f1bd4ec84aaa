"""Segment ends that a model found in handwriting, scored against the ends of strokes."""

from __future__ import annotations

import numpy as np

from hmrnn.analysis.scores import TOLERANCES, BoundaryScores, ends_of, score
from hmrnn.analysis.segmentation import Segmentation


def pen_ups(steps: np.ndarray) -> np.ndarray:
    """Where strokes end in a line (T, 3), as ``Segmentation.ends`` counts: the number of points before the cut."""
    return ends_of(steps[:, 2] > 0.5)


def against_pen_ups(segmentation: Segmentation, steps: np.ndarray) -> dict[int, dict[int, BoundaryScores]]:
    """The scores of each level's segment ends against the ends of strokes, by level and by tolerance in points."""
    gold = pen_ups(steps)
    return {
        level: {
            tolerance: score(segmentation.ends(level), gold, len(segmentation), tolerance=tolerance)
            for tolerance in TOLERANCES
        }
        for level in range(1, segmentation.levels + 1)
    }
