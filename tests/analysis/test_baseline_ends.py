"""Segment ends without a detector."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hmrnn.analysis import baselines
from hmrnn.training.terms.steering import entropy_rise


def test_baselines() -> None:
    assert baselines.fixed_length(11, 0.3).tolist() == [3, 6, 10]
    assert baselines.fixed_length(11, 1.0).tolist() == list(range(1, 11))
    assert baselines.fixed_length(11, 0.0).tolist() == baselines.fixed_length(1, 0.5).tolist() == []
    assert [e.tolist() for e in baselines.surprise_rises([[math.nan, 1, 2, 2, 5, 1], []])] == [[2, 4], []]
    assert [e.tolist() for e in baselines.surprise_rises([[math.nan, 1, 2], [3, 9, 1, 2.5]], 2 / 5)] == [[], [1, 3]]
    surprises, expected = [[math.nan, 4, 0], [1, 4, 0, 8]], [[math.nan, 2, 1], [0, 4, 4, 2]]
    assert baselines.uncertainty(np.array(surprises[1]), np.array(expected[1])).tolist() == [0.25, 5, 3, 3]
    steps = entropy_rise(np.array([2.0, 5, 1, 8]), np.array([3.0, 4, 2, 7]))
    assert steps.tolist() == pytest.approx([1, 4 - 5 / 3, 2 - 3, 7 - 1])
    assert [e.tolist() for e in baselines.most_uncertain(surprises, expected, 3 / 5)] == [[], [1, 2, 3]]
    assert [e.tolist() for e in baselines.most_uncertain(surprises, expected, 1.0)] == [
        [2],
        [1, 2, 3],
    ]  # one is not known
    assert baselines.most_uncertain([], [], 0.5) == []
