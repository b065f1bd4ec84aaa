"""What a decision says of its segments."""

import numpy as np

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.kinds.labels.decision import Decision


def decision(weights: np.ndarray) -> Decision:
    boundaries = np.array([[0], [1], [0]])
    found = Segmentation(tuple("abc"), boundaries, boundaries / 2, np.ones((3, 2), int), np.ones((3, 2)))
    return Decision("x" * len(weights), [0.5] * len(weights), found, weights)


def test_parts_have_the_mean_weights_of_what_was_written() -> None:
    found = decision(np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]))
    assert [(part.text, part.weight) for part in found.parts()] == [("ab", 0.375), ("c", 0.625)]
    assert found.sources() == ["ab", "c"]


def test_nothing_written_has_no_weights() -> None:
    found = decision(np.zeros((0, 3)))
    assert [part.weight for part in found.parts()] == [0, 0]
    assert found.sources() == []
    assert found.render() == "answer  \nsegments  ab|c"
