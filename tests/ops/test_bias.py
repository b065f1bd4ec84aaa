"""The estimators on networks so small that all boundary sequences can be enumerated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from hmrnn.ops import Options, Variant
from hmrnn.ops.estimators import relaxed_gradient, score_function

bias = tiny.script(tiny.ROOT / "benchmarks" / "bias.py")


@pytest.mark.parametrize(("T", "layers", "on_copy"), [(4, 2, "evaluate"), (3, 3, "evaluate"), (3, 3, "hold")])
@pytest.mark.parametrize("by_baseline", [False, True])
def test_reinforce_has_the_true_gradient_in_expectation(T: int, layers: int, on_copy: str, by_baseline: bool) -> None:
    p = bias.Problem.make(1, T, layers)
    result, losses, weight = bias.drawn(p, Options(Variant("reinforce", on_copy)))  # type: ignore[arg-type]
    truth = p.gradient((weight * losses.sum(0)).sum())
    if on_copy == "evaluate":
        assert torch.allclose(truth, bias.true_gradient(p), rtol=0, atol=1e-12)
    chances = result.probabilities
    if on_copy == "hold":  # a layer that copies draws nothing
        z = result.boundaries
        flushed = torch.cat([torch.zeros_like(z[:1]), z[:-1]])[..., 1]
        chances = torch.stack([chances[..., 0], chances[..., 1] * torch.maximum(z[..., 0], flushed)], dim=-1)
    baseline: Tensor | float = 0.0
    if by_baseline:  # of what is known before a step
        before = torch.cat([torch.zeros_like(losses[:1]), result.hidden[0][:-1].sum(-1)])
        baseline = 3.0 + before
    terms = score_function(chances, result.boundaries, losses, baseline)
    got = p.gradient((weight.detach() * (losses + terms).sum(0)).sum())
    assert truth.abs().max() > 0.1
    assert (got - truth).abs().max() < 1e-8
    pathwise = p.gradient((weight.detach() * losses.sum(0)).sum())
    assert (pathwise - truth).abs().max() > 1e-2, "without the terms the gradient is wrong"
    if by_baseline:  # one that knows the draws would bias it
        terms = score_function(chances, result.boundaries, losses, result.boundaries[..., 0])
        biased = p.gradient((weight.detach() * (losses + terms).sum(0)).sum())
        assert (biased - truth).abs().max() > 1e-2


def test_a_discount_biases_and_the_entropy_bonus_is_the_entropy() -> None:
    p = bias.Problem.make(2, T=4, layers=2)
    result, losses, weight = bias.drawn(p, Options(Variant("reinforce")))
    given = result.probabilities, result.boundaries, losses
    truth = bias.true_gradient(p)
    got = p.gradient((weight.detach() * (losses + score_function(*given, discount=0.5)).sum(0)).sum())
    assert (got - truth).abs().max() > 1e-2
    q = result.probabilities
    entropy = -(q * q.log() + (1 - q) * (1 - q).log()).sum(-1)
    torch.testing.assert_close(score_function(*given, entropy=0.3), score_function(*given) - 0.3 * entropy)


def test_gumbel_at_a_low_temperature_is_sample_on_average() -> None:
    """The mean of the relaxed gradient over the noise goes to 1 as the temperature goes to 0."""
    p, temperature = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64), 0.05
    noise = ((torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000)[:, None]
    mean = relaxed_gradient(p.expand(100_000, 3), noise, temperature).mean(0)
    assert mean.tolist() == pytest.approx([1, 1, 1], abs=0.02)
