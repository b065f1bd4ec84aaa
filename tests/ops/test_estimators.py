"""Equations 8 and 9: values, the straight-through factor, the schedule."""

from __future__ import annotations

import pytest
import torch

from hmrnn.ops.estimators import (
    annealed_slope,
    decide,
    discounted_sums,
    hard_sigmoid,
    linear,
    relaxed,
    relaxed_gradient,
    score_function,
)


@pytest.mark.parametrize("slope", [1.0, 2.0, 4.0])
def test_hard_sigmoid_and_its_gradient(slope: float) -> None:
    s = torch.tensor([-9.0, -1.5, -1.0, -0.25, 0.0, 0.25, 1.0, 1.5, 9.0], dtype=torch.float64) / slope
    s.requires_grad_()
    p = hard_sigmoid(s, slope)
    assert p.tolist() == [max(0.0, min(1.0, (slope * v + 1) / 2)) for v in s.tolist()]
    p.sum().backward()
    assert s.grad is not None
    assert s.grad.tolist() == [slope / 2 if abs(slope * v) <= 1 else 0 for v in s.tolist()]


def test_step_is_strict_at_one_half() -> None:
    p = torch.tensor([0.0, 0.5, 0.5 + 1e-9, 1.0], dtype=torch.float64)
    assert decide(p, "step").tolist() == [0, 0, 1, 1]
    assert decide(p, "sample").tolist() == [0, 0, 1, 1]
    assert decide(p, "soft") is p


def test_sample_draws_one_with_probability_p() -> None:
    p = torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)
    noise = torch.rand(4000, 4, dtype=torch.float64)
    z = decide(p.expand(4000, 4), "sample", noise)
    assert set(z.flatten().tolist()) == {0, 1}
    assert z[:, 0].sum() == 0
    assert z[:, 3].sum() == 4000
    assert z.mean(dim=0)[1:3].tolist() == pytest.approx([0.2, 0.7], abs=0.03)
    assert decide(p, "step", noise[0]).tolist() == [0, 0, 1, 1]  # which is not drawn


def test_annealed_slope_is_the_papers_schedule() -> None:
    assert annealed_slope(0, 0.04, 5.0) == 1.0
    assert annealed_slope(25, 0.04, 5.0) == pytest.approx(2.0)
    assert annealed_slope(100, 0.04, 5.0) == 5.0
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
