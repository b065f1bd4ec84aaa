"""StrokeMixture against torch.distributions in float64: densities, gradients, extremes, entropies and samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, MixtureSameFamily, MultivariateNormal

from hmrnn.kinds.strokes.mixture import FLOOR, MAX_CORRELATION, StrokeMixture, head_size
from refusals import refused

K = 5


def vectors(*shape: int, spread: float = 1.0) -> Tensor:
    return spread * torch.randn(*shape, head_size(K), dtype=torch.float64)


def points(*shape: int) -> Tensor:
    return torch.cat([torch.randn(*shape, 2), torch.randint(2, (*shape, 1)).float()], dim=-1).double()


def by_distributions(vector: Tensor, at: Tensor) -> Tensor:
    """Graves's equations 16 to 26, with this module's bounds, and densities by torch.distributions."""
    weight, mean_x, mean_y, s_x, s_y, r = vector[..., :-1].unflatten(-1, (6, K)).unbind(-2)
    deviation_x, deviation_y = s_x.exp() + FLOOR, s_y.exp() + FLOOR
    rho = MAX_CORRELATION * torch.tanh(r)
    off = rho * deviation_x * deviation_y
    rows = torch.stack([deviation_x**2, off, off, deviation_y**2], dim=-1)
    normals = MultivariateNormal(torch.stack([mean_x, mean_y], dim=-1), rows.unflatten(-1, (2, 2)))
    mixture = MixtureSameFamily(Categorical(logits=weight), normals)
    return mixture.log_prob(at[..., :2]) + Bernoulli(logits=vector[..., -1]).log_prob(at[..., 2])


def test_a_far_point_and_a_narrow_gaussian_give_no_infinity() -> None:
    vector = torch.zeros(head_size(1))
    vector[3:5] = -100.0  # deviations: the floor
    vector.requires_grad_()
    density = StrokeMixture.from_vector(vector).log_prob(torch.tensor([1e15, -1e15, 1.0]))
    (gradient,) = torch.autograd.grad(density, vector)
    assert density.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_density_and_gradient_are_those_of_torch_distributions(spread: float) -> None:
    vector, at = vectors(40, 3, spread=spread).requires_grad_(), points(40, 3)
    ours = StrokeMixture.from_vector(vector).log_prob(at)
    theirs = by_distributions(vector, at)
    assert ours.shape == (40, 3)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    (mine,) = torch.autograd.grad(ours.sum(), vector)
    (expected,) = torch.autograd.grad(theirs.sum(), vector)
    torch.testing.assert_close(mine, expected, rtol=1e-7, atol=1e-8)


def test_gradient_is_that_of_finite_differences() -> None:
    at = points(4)
    assert torch.autograd.gradcheck(
        lambda vector: StrokeMixture.from_vector(vector).log_prob(at), vectors(4).requires_grad_()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_extremes_stay_finite(dtype: torch.dtype, size: float) -> None:
    """Tiny and huge deviations, |ρ| at its bound, points at the mean and far away."""
    vector = (size * torch.randn(64, head_size(K))).to(dtype)
    at = points(64).float() * torch.logspace(-6, 5, 64)[:, None]
    at[:, 2] = (at[:, 2] > 0).float()
    at[:8, :2] = StrokeMixture.from_vector(vector).means[:8, 0]  # in the middle of a component
    vector = vector.requires_grad_()
    value = StrokeMixture.from_vector(vector).log_prob(at)
    assert value.dtype == torch.float32
    value.mean().backward()
    assert value.isfinite().all()
    assert vector.grad is not None
    assert vector.grad.isfinite().all()


@pytest.mark.parametrize("skew", [-40.0, -5.0, 5.0, 40.0])
@pytest.mark.parametrize("width", [-40.0, -7.0, 0.0])
def test_float32_keeps_its_digits_where_gaussians_are_thin(skew: float, width: float) -> None:
    vector = torch.zeros(head_size(1), dtype=torch.float64)
    vector[3:6] = torch.tensor([width, width, skew])
    at = torch.tensor([0.003, math.copysign(0.003, skew) * 1.01, 0.0], dtype=torch.float64)
    exact = StrokeMixture.from_vector(vector).log_prob(at)
    single = StrokeMixture.from_vector(vector.float()).log_prob(at.float())
    assert float(single) == pytest.approx(float(exact), rel=2e-4, abs=1e-3)


def test_bf16_autocast_computes_in_float32() -> None:
    vector, at = vectors(20).float(), points(20).float()
    plain = StrokeMixture.from_vector(vector).log_prob(at)
    with torch.autocast("cpu", torch.bfloat16):
        cast = StrokeMixture.from_vector(vector).log_prob(at)
    assert cast.dtype == torch.float32
    assert torch.equal(plain, cast)


def test_bounds_hold() -> None:
    mixture = StrokeMixture.from_vector(torch.full((head_size(K),), -1e4))
    assert float(mixture.log_deviations.exp().min()) == pytest.approx(FLOOR, rel=1e-5)
    assert float(mixture.correlation.min()) == pytest.approx(-MAX_CORRELATION, abs=1e-6)
    assert float(mixture.rest.min()) == pytest.approx(1 - MAX_CORRELATION**2, rel=1e-5)


@pytest.mark.parametrize("size", [0, 1, 6, 12, 14])
def test_a_vector_of_another_size_is_refused(size: int) -> None:
    with refused():
        StrokeMixture.from_vector(torch.zeros(2, size))


def one(count: int) -> StrokeMixture:
    """The same mixture of two components, ``count`` times."""
    vector = torch.tensor([0.5, -0.5, 2.0, -3.0, 1.0, 0.0, -1.0, 0.2, -0.5, -2.0, 0.8, -1.0, -1.2], dtype=torch.float64)
    return StrokeMixture.from_vector(vector.expand(count, 13))


def test_samples_have_the_moments_of_the_density() -> None:
    mixture = one(200_000)
    drawn = mixture.sample(generator=torch.Generator().manual_seed(1))
    w = mixture.log_weights[0].exp()
    expected = (w[:, None] * mixture.means[0]).sum(0)
    torch.testing.assert_close(drawn[:, :2].mean(0), expected, rtol=0, atol=0.02)
    assert float(drawn[:, 2].mean()) == pytest.approx(float(torch.sigmoid(mixture.pen[0])), abs=0.005)
    first = drawn[drawn[:, 0] > 0.5, :2]  # the components lie far apart
    assert len(first) / len(drawn) == pytest.approx(float(w[0]), abs=0.005)
    torch.testing.assert_close(first.std(0), mixture.log_deviations[0, 0].exp(), rtol=0.02, atol=0)
    assert float(torch.corrcoef(first.T)[0, 1]) == pytest.approx(float(mixture.correlation[0, 0]), abs=0.01)


def test_bias_and_temperature_narrow() -> None:
    mixture = one(50_000)
    plain, biased, cool = (
        mixture.sample(bias=bias, temperature=temperature, generator=torch.Generator().manual_seed(2))
        for bias, temperature in ((0.0, 1.0), (1.0, 1.0), (0.0, 0.25))
    )
    kept = [points[points[:, 0] > 0.5] for points in (plain, biased, cool)]
    widths = [float(points[:, 0].std()) for points in kept]
    assert widths[1] / widths[0] == pytest.approx(math.exp(-1), rel=0.03)
    assert widths[2] / widths[0] == pytest.approx(0.5, rel=0.03)
    odds = float(torch.exp(mixture.log_weights[0, 0] - mixture.log_weights[0, 1]))
    assert len(kept[1]) / (50_000 - len(kept[1])) == pytest.approx(odds**2, rel=0.05)
    assert len(kept[2]) / (50_000 - len(kept[2])) == pytest.approx(odds**4, rel=0.1)


def test_temperature_zero_takes_the_likeliest() -> None:
    drawn = one(3).sample(temperature=0)
    torch.testing.assert_close(drawn, torch.tensor([[2.0, 1.0, 0.0]] * 3, dtype=torch.float64))


def test_a_seed_repeats_a_draw() -> None:
    mixture = one(10)
    draws = [mixture.sample(generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_predictions_that_are_not_finite_cannot_be_drawn_from() -> None:
    with refused():
        one(2)._replace(pen=torch.tensor(math.nan)).sample()
