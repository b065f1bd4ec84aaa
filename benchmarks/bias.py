"""bias.py: the bias of each estimator on networks so small that all boundary sequences can be enumerated.

It prints the table of docs/cell.md.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.ops import LayerWeights, Options, Result, State, Variant, reference
from hmrnn.ops.estimators import score_function

NETWORKS = 20


def random_weights(layers: int) -> list[LayerWeights]:
    """Layers of 2 units that read 2 numbers; detectors with small weights, so that none is ever certain."""
    found = []
    for l in range(layers):
        rows = 8 + (l < layers - 1)
        w = {name: torch.randn(rows, 2, dtype=torch.float64) / 2**0.5 for name in ("UW" if rows == 8 else "UWV")}
        w["b"] = 0.3 * torch.randn(rows, dtype=torch.float64)
        if rows == 9:
            for a in w.values():
                a[-1] *= 0.15
        found.append(LayerWeights(**{name: a.requires_grad_() for name, a in w.items()}))
    return found


class Problem(NamedTuple):
    """A network and the loss (T, B) of each step, for a batch of copies of one sequence."""

    weights: list[LayerWeights]
    x: Tensor  # (T, 1, 2)
    readout: Tensor  # (units,)
    target: Tensor  # (T, 1)

    @staticmethod
    def make(seed: int, T: int, layers: int) -> Problem:
        torch.manual_seed(seed)
        weights = random_weights(layers)
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
    options = Options(Variant(boundary=estimator), temperature=temperature)  # type: ignore[arg-type]
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
    result, losses = p.run(Options(Variant(boundary=estimator), temperature=temperature), noise)  # type: ignore[arg-type]
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


def main() -> None:
    print(f"{'estimator':25} {'bias':>6} {'cosine':>7} {'noise':>6}")
    for name, (bias, cosine, noise) in table().items():
        print(f"{name:25} {bias:6.2f} {cosine:7.2f} {noise:6.2f}")


if __name__ == "__main__":
    main()
