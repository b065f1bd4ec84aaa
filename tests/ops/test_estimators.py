"""Equations 8 and 9 where test_reference.py does not look: ties, margins, certain draws, schedules."""

from __future__ import annotations

import pytest
import torch

from hmrnn.ops.estimators import (
    annealed_slope,
    decide,
    discounted_sums,
    linear,
    relaxed,
    relaxed_gradient,
    score_function,
)


def test_step_is_strict_at_one_half() -> None:
    p = torch.tensor([0.0, 0.5, 0.5 + 1e-9, 1.0], dtype=torch.float64)
    assert decide(p, "step").tolist() == [0, 0, 1, 1]
    assert decide(p, "sample").tolist() == [0, 0, 1, 1]
    assert decide(p, "step", torch.tensor(0.9)).tolist() == [0, 0, 1, 1]  # which is not drawn


def test_annealed_slope_is_the_papers_schedule() -> None:
    assert annealed_slope(0, 0.04, 5.0) == 1.0
    assert annealed_slope(25, 0.04, 5.0) == pytest.approx(2.0)
    assert annealed_slope(500, 0.04, 5.0) == 5.0


def test_gumbel_draws_as_sample_with_the_gradient_of_the_relaxation() -> None:
    p = torch.tensor([0.005, 0.2, 0.5, 0.7, 0.995], dtype=torch.float64).repeat(50, 1).requires_grad_()
    noise, temperature = torch.rand(50, 5, dtype=torch.float64), 0.4
    noise[0] = 0.0  # which torch.rand may give
    z = decide(p, "gumbel", noise, temperature)
    assert torch.equal(z, decide(p, "sample", noise))
    z.sum().backward()
    assert p.grad is not None
    assert torch.equal(p.grad[:, [0, 4]], torch.zeros(50, 2, dtype=torch.float64))  # outside of the margin
    inside = p.detach()[:, 1:4], noise[:, 1:4]
    step = 1e-6
    higher, lower = (relaxed(inside[0] + d, inside[1], temperature) for d in (step, -step))
    torch.testing.assert_close(p.grad[:, 1:4], (higher - lower) / (2 * step), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(p.grad, relaxed_gradient(p.detach(), noise, temperature), rtol=1e-10, atol=1e-12)
    assert torch.equal(relaxed(*inside, temperature) > 0.5, z[:, 1:4] > 0.5)


def test_discounted_sums() -> None:
    values = torch.tensor([[1.0], [2.0], [4.0]])
    assert discounted_sums(values).flatten().tolist() == [7, 6, 4]
    assert discounted_sums(values, 0.5).flatten().tolist() == [3, 4, 4]


def test_score_function_at_certain_draws_is_finite() -> None:
    p = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    score_function(p, torch.tensor([[[0.0, 1.0]]]), torch.ones(1, 1), entropy=1.0).sum().backward()
    assert p.grad is not None
    assert p.grad.flatten().tolist() == [0, 0]


def test_the_temperature_goes_linearly_from_the_first_epoch_to_the_last() -> None:
    assert [linear(epoch, 5, 1.0, 0.5) for epoch in (0, 1, 4, 9)] == [1.0, 0.875, 0.5, 0.5]
    assert linear(0, 1, 2.0, 0.5) == 2.0
