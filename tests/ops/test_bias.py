"""The bias of each estimator on networks so small that all boundary sequences can be enumerated.

``python tests/ops/test_bias.py`` prints the table of docs/cell.md.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from hmrnn.ops import LayerWeights, Options, Result, State, reference
from hmrnn.ops.estimators import relaxed_gradient, score_function
from literal import random_weights

NETWORKS = 20
DOCS = Path(__file__).parents[2] / "docs" / "cell.md"


class Problem(NamedTuple):
    """A network and the loss (T, B) of each step, for a batch of copies of one sequence."""

    weights: list[LayerWeights]
    x: Tensor  # (T, 1, 2)
    readout: Tensor  # (units,)
    target: Tensor  # (T, 1)

    @staticmethod
    def make(seed: int, T: int, layers: int) -> Problem:
        torch.manual_seed(seed)
        sizes = (2,) * layers
        weights = random_weights(2, sizes, False, detector=0.15)
        for w in weights:
            for a in (w.U, w.W, w.b, w.V):
                if a is not None:
                    a.requires_grad_()
        x, readout = torch.randn(T, 1, 2, dtype=torch.float64), torch.randn(2 * layers, dtype=torch.float64)
        return Problem(weights, x, 2 * readout, torch.randn(T, 1, dtype=torch.float64))

    @property
    def detectors(self) -> int:
        return len(self.weights) - 1

    def run(self, options: Options, noise: Tensor | None = None, forced: Tensor | None = None) -> tuple[Result, Tensor]:
        B = max(1 if a is None else a.shape[1] for a in (noise, forced))
        zeros = tuple(self.x.new_zeros(B, 2) for _ in self.weights)
        state = State(zeros, zeros, self.x.new_zeros(B, self.detectors))
        x = self.x.expand(-1, B, -1)
        result = reference.hmlstm(x, self.weights, state, options, noise=noise, boundaries=forced)
        return result, (torch.cat(result.hidden, dim=-1) @ self.readout - self.target) ** 2

    def parameters(self, detectors_only: bool) -> list[Tensor]:
        """All parameters, or those that have a detector's row."""
        layers = self.weights[:-1] if detectors_only else self.weights
        return [a for w in layers for a in (w.U, w.W, w.b, w.V) if a is not None]

    def gradient(self, loss: Tensor, detectors_only: bool = False) -> Tensor:
        """The gradient of ``loss`` as one vector: that of all parameters, or of the detectors' rows."""
        parameters = self.parameters(detectors_only)
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        return torch.cat([(g[-1:] if detectors_only else g).flatten() for g in gradients])


def sequences(T: int, detectors: int) -> Tensor:
    """(T, 2^(T · detectors), detectors): all sequences of zeros and ones."""
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=T * detectors)), dtype=torch.float64)
    return every.t().unflatten(0, (T, detectors)).transpose(1, 2).contiguous()


def probability(p: Tensor, z: Tensor) -> Tensor:
    """(B,): of the draws z, given the probabilities of 1."""
    return torch.where(z > 0, p, 1 - p).prod(0).prod(-1)


def drawn(p: Problem, options: Options) -> tuple[Result, Tensor, Tensor]:
    """Result, losses (T, B) and probability (B,) of all draws, made by noise that leaves no choice."""
    z = sequences(len(p.x), p.detectors)
    result, losses = p.run(options, noise=1 - z)
    assert result.probabilities.min() > 0.02
    assert result.probabilities.max() < 0.98
    return result, losses, probability(result.probabilities, z)


def true_gradient(p: Problem, detectors_only: bool = False) -> Tensor:
    """The gradient of the expected loss, by forced boundaries: nothing here is an estimator."""
    z = sequences(len(p.x), p.detectors)
    result, losses = p.run(Options(), forced=z)
    weight = probability(result.probabilities, z)
    assert weight.sum().item() == pytest.approx(1, abs=1e-12)
    return p.gradient((weight * losses.sum(0)).sum(), detectors_only)


def gumbel_quadrature(p: Problem, options: Options, nodes: int) -> tuple[Tensor, Tensor]:
    """Noise (T, B, 1) and weights (B,) for the mean over all noise: Gauss-Legendre where z is constant."""
    z = sequences(len(p.x), 1)
    result, _, weight = drawn(p, options)
    chance = result.probabilities.detach()
    at, share = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(nodes))
    grid = torch.cartesian_prod(*[(at + 1) / 2] * len(z)).t()[:, None]  # (T, 1, nodes^T)
    shares = torch.cartesian_prod(*[share / 2] * len(z)).prod(1)
    noise = torch.where(z > 0, chance * grid, chance + (1 - chance) * grid)
    return noise.flatten(1)[..., None], (weight.detach()[:, None] * shares).flatten()


def expected_gradient(p: Problem, estimator: str, temperature: float = 1.0, nodes: int = 5) -> Tensor:
    """The gradient of the detectors' rows that an estimator gives on average."""
    options = Options(boundary=estimator, temperature=temperature)  # type: ignore[arg-type]
    if estimator in ("step", "soft"):
        return p.gradient(p.run(options)[1].sum(), True)
    if estimator == "gumbel":
        noise, weight = gumbel_quadrature(p, options, nodes)
        return p.gradient((weight * p.run(options, noise)[1].sum(0)).sum(), True)
    result, losses, weight = drawn(p, options)
    if estimator == "reinforce":
        losses = losses + score_function(result.probabilities, result.boundaries, losses)
    return p.gradient((weight.detach() * losses.sum(0)).sum(), True)


def spread(p: Problem, estimator: str, temperature: float = 1.0, draws: int = 128) -> float:
    """The root mean square distance of the gradient of one draw from its mean."""
    if estimator in ("step", "soft"):
        return 0.0
    torch.manual_seed(0)
    noise = torch.rand(len(p.x), draws, 1, dtype=torch.float64)
    result, losses = p.run(Options(boundary=estimator, temperature=temperature), noise)  # type: ignore[arg-type]
    if estimator == "reinforce":
        losses = losses + score_function(result.probabilities, result.boundaries, losses)
    each = torch.eye(draws, dtype=torch.float64)
    parts = torch.autograd.grad(losses.sum(0), p.parameters(True), each, is_grads_batched=True)
    gradients = torch.cat([g[:, -1:].flatten(1) for g in parts], dim=1)  # (draws, parameters)
    return gradients.var(0).sum().sqrt().item()


ESTIMATORS = {
    "step": ("step", 1.0),
    "sample": ("sample", 1.0),
    "soft": ("soft", 1.0),
    "gumbel, temperature 1": ("gumbel", 1.0),
    "gumbel, temperature 0.5": ("gumbel", 0.5),
    "reinforce": ("reinforce", 1.0),
}


def table() -> dict[str, tuple[float, float, float]]:
    """For each estimator: bias, cosine to the true gradient and noise of one draw; medians over the networks."""
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ESTIMATORS}
    for seed in range(NETWORKS):
        p = Problem.make(seed, T=4, layers=2)
        truth = true_gradient(p, True)
        for name, estimator in ESTIMATORS.items():
            got = expected_gradient(p, *estimator)
            cosine = torch.cosine_similarity(got, truth, dim=0).item()
            size = truth.norm().item()
            rows[name].append(((got - truth).norm().item() / size, cosine, spread(p, *estimator) / size))
    return {name: tuple(np.median(values, axis=0).tolist()) for name, values in rows.items()}  # type: ignore[misc]


@pytest.mark.slow
def test_the_table_in_the_docs_is_what_is_measured() -> None:
    lines = [line.strip("| ").split(" | ") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    told = {cells[0].replace("`", ""): cells[2:] for cells in lines if cells[0].replace("`", "") in ESTIMATORS}
    assert told == {name: [f"{value:.2f}" for value in values] for name, values in table().items()}


@pytest.mark.parametrize(("T", "layers", "on_copy"), [(4, 2, "evaluate"), (3, 3, "evaluate"), (3, 3, "hold")])
@pytest.mark.parametrize("by_baseline", [False, True])
def test_reinforce_has_the_true_gradient_in_expectation(T: int, layers: int, on_copy: str, by_baseline: bool) -> None:
    p = Problem.make(1, T, layers)
    result, losses, weight = drawn(p, Options(boundary="reinforce", on_copy=on_copy))  # type: ignore[arg-type]
    truth = p.gradient((weight * losses.sum(0)).sum())
    if on_copy == "evaluate":
        assert torch.allclose(truth, true_gradient(p), rtol=0, atol=1e-12)
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
    p = Problem.make(2, T=4, layers=2)
    result, losses, weight = drawn(p, Options(boundary="reinforce"))
    given = result.probabilities, result.boundaries, losses
    truth = true_gradient(p)
    got = p.gradient((weight.detach() * (losses + score_function(*given, discount=0.5)).sum(0)).sum())
    assert (got - truth).abs().max() > 1e-2
    q = result.probabilities
    entropy = -(q * q.log() + (1 - q) * (1 - q).log()).sum(-1)
    torch.testing.assert_close(score_function(*given, entropy=0.3), score_function(*given) - 0.3 * entropy)


def test_gumbel_quadrature_has_converged() -> None:
    p = Problem.make(3, T=4, layers=2)
    few, many = (expected_gradient(p, "gumbel", 0.5, nodes) for nodes in (5, 9))
    assert (few - many).norm() < 0.002 * many.norm()


def test_gumbel_at_a_low_temperature_is_sample_on_average() -> None:
    """The mean of the relaxed gradient over the noise goes to 1 as the temperature goes to 0."""
    p, temperature = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64), 0.05
    noise = ((torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000)[:, None]
    mean = relaxed_gradient(p.expand(100_000, 3), noise, temperature).mean(0)
    assert mean.tolist() == pytest.approx([1, 1, 1], abs=0.02)


if __name__ == "__main__":
    print(f"{'estimator':25} {'bias':>6} {'cosine':>7} {'noise':>6}")
    for name, (bias, cosine, noise) in table().items():
        print(f"{name:25} {bias:6.2f} {cosine:7.2f} {noise:6.2f}")
