"""Categorical predictions against torch.distributions: densities, entropies, filters and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical as TorchCategorical

from hmrnn.nn.distributions import Categorical
from refusals import refused

PREDICTION = Categorical(torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3])))


def test_a_categorical_prediction() -> None:
    logits = torch.randn(4, 3, 7)
    prediction, theirs = Categorical(logits), TorchCategorical(logits=logits)
    x = torch.randint(7, (4, 3))
    torch.testing.assert_close(prediction.log_prob(x), theirs.log_prob(x))
    torch.testing.assert_close(prediction.entropy(), theirs.entropy())
    torch.testing.assert_close(prediction.probabilities(), theirs.probs.double())
    assert torch.equal(prediction.sample(temperature=0), logits.argmax(-1))
    drawn = Categorical(logits[0, 0].expand(20_000, 7)).sample(torch.Generator().manual_seed(1))
    np.testing.assert_allclose(np.bincount(drawn, minlength=7) / 20_000, theirs.probs[0, 0].numpy(), atol=0.015)


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (1, None, [0, 1, 0, 0]),
        (2, None, [0, 4 / 7, 0, 3 / 7]),
        (4, None, [0.1, 0.4, 0.2, 0.3]),
        (9, None, [0.1, 0.4, 0.2, 0.3]),
        (None, 0.01, [0, 1, 0, 0]),
        (None, 0.39, [0, 1, 0, 0]),
        (None, 0.41, [0, 4 / 7, 0, 3 / 7]),
        (None, 0.71, [0, 4 / 9, 2 / 9, 3 / 9]),
        (None, 1.0, [0.1, 0.4, 0.2, 0.3]),
        (2, 0.5, [0, 1, 0, 0]),  # of what top_k left, the first holds 4/7
        (2, 0.6, [0, 4 / 7, 0, 3 / 7]),
    ],
)
def test_filters(top_k: int | None, top_p: float | None, expected: list[float]) -> None:
    torch.testing.assert_close(
        PREDICTION.probabilities(top_k=top_k, top_p=top_p), torch.tensor(expected, dtype=torch.float64)
    )


def test_filters_keep_exactly_as_many_of_equals_as_asked() -> None:
    assert (Categorical(torch.zeros(7)).probabilities(top_k=3) > 0).tolist() == [True] * 3 + [False] * 4
    assert Categorical(torch.zeros(7)).probabilities(temperature=0).tolist() == [1] + [0] * 6


def test_filters_act_on_each_prediction_of_a_batch() -> None:
    logits = torch.randn(6, 8)
    for how in ({"top_k": 3}, {"top_p": 0.6}, {"temperature": 0.5, "top_k": 5, "top_p": 0.7}):
        together = Categorical(logits).probabilities(**how)  # type: ignore[arg-type]
        for row, alone in zip(logits, together):
            assert torch.equal(Categorical(row).probabilities(**how), alone)  # type: ignore[arg-type]


def test_predictions_that_are_not_finite_cannot_be_drawn_from() -> None:
    with refused():
        Categorical(torch.tensor([0.0, math.inf])).sample()
