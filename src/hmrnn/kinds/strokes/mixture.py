"""The distribution of the next point of a pen: a mixture of Gaussians (Graves, 2013, section 4).

Densities are computed in float32 or better and in logarithms: neither a far point nor a narrow Gaussian gives an
infinity, up to 10¹⁵ deviations of the training steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn.distributions import choose, for_draws, gumbel_argmax

POINT_SIZE = 3
"""Δx, Δy, pen_up."""
FLOOR = 1e-3
"""The smallest deviation of a stroke mixture, in units of the training deviation. Without it, likelihood has no bound:
the steps of a digitiser are whole numbers, and a Gaussian can narrow around one of them without end."""
MAX_CORRELATION = 0.9999
DRAWS = 4
"""Random numbers of which a point is made."""
PER_COMPONENT = 6
"""Numbers of a component of a stroke mixture: weight, two means, two deviations, correlation."""


def head_size(components: int) -> int:
    """The number of network outputs that describe a stroke mixture of so many components."""
    return PER_COMPONENT * components + 1


class StrokeMixture(NamedTuple):
    """The distribution of the next point (x, y, pen): K bivariate Gaussians, and a Bernoulli for lifting the pen."""

    log_weights: Tensor
    """(..., K), sums to one after exp."""
    means: Tensor
    """(..., K, 2)"""
    log_deviations: Tensor
    """(..., K, 2)"""
    correlation: Tensor
    """(..., K): ρ"""
    rest: Tensor
    """(..., K): 1 - ρ², kept beside ρ because subtracting would lose its digits."""
    pen: Tensor
    """(...): log-odds of pen_up = 1."""

    @classmethod
    def from_vector(cls, vector: Tensor) -> StrokeMixture:
        """From network outputs: (..., 6K+1) numbers of any size."""
        components, remainder = divmod(vector.shape[-1] - 1, PER_COMPONENT)
        if components < 1 or remainder:
            raise InputError(f"a mixture takes 6K+1 numbers with K at least 1; got {vector.shape[-1]}")
        vector = vector if vector.dtype == torch.float64 else vector.float()
        weight, mean_x, mean_y, deviation_x, deviation_y, skew = (
            vector[..., :-1].unflatten(-1, (6, components)).unbind(-2)
        )
        bound, deviations = MAX_CORRELATION, torch.stack([deviation_x, deviation_y], dim=-1)
        fade = torch.exp(-2 * skew.abs())
        sech2 = 4 * fade / (1 + fade) ** 2  # 1 - tanh²
        return cls(
            log_weights=torch.log_softmax(weight, dim=-1),
            means=torch.stack([mean_x, mean_y], dim=-1),
            log_deviations=torch.logaddexp(deviations, torch.full_like(deviations, math.log(FLOOR))),
            correlation=bound * torch.tanh(skew),
            rest=(1 - bound**2) + bound**2 * sech2,
            pen=vector[..., -1],
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """(...): log-density of points (..., 3): x, y and 1 where the pen is lifted after the point."""
        x = x.to(self.means.dtype)
        return self._log_position(x[..., :2]) - F.binary_cross_entropy_with_logits(
            self.pen, x[..., 2], reduction="none"
        )

    def _log_position(self, xy: Tensor) -> Tensor:
        z = (xy[..., None, :] - self.means) * torch.exp(-self.log_deviations)  # (..., K, 2)
        x, y = z.unbind(-1)
        across = y - self.correlation * x  # what x leaves open of y: a square, so no difference of large numbers
        exponent = x**2 + across**2 / self.rest
        log_norm = self.log_deviations.sum(-1) + 0.5 * torch.log(self.rest) + math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights - log_norm - 0.5 * exponent, dim=-1)

    def sample(
        self, generator: torch.Generator | None = None, *, temperature: float = 1.0, bias: float = 0.0
    ) -> Tensor:
        """(..., 3) float64: one point from each.

        ``bias`` is Graves's: deviations shrink by e^-bias and weights are sharpened, so that the writing gets neater.
        ``temperature`` 0 takes the mean of the likeliest component and the likelier state of the pen.
        """
        return self.made_of(_uniform(self.pen, DRAWS, generator), temperature, bias)

    def made_of(self, uniform: Tensor, temperature: float, bias: float) -> Tensor:
        """As :meth:`sample`, of numbers (..., DRAWS) between 0 and 1."""
        each = [part[..., None] for part in (self.log_weights, self.correlation, self.rest)]
        parts, pen = for_draws([torch.cat([*each, self.means, self.log_deviations], dim=-1), self.pen])
        log_weights = parts[..., 0]  # of parts (..., K, 7)
        of_component, of_pen, of_radius, of_angle = uniform.unbind(-1)
        if temperature == 0:
            k = log_weights.argmax(-1)
        else:
            k = choose(torch.softmax(log_weights * ((1 + bias) / temperature), dim=-1), of_component)
        lifted = _happens(pen, of_pen, temperature)
        radius, angle = torch.sqrt(-2 * torch.log1p(-of_radius)), 2 * math.pi * of_angle
        x, y = radius * torch.cos(angle), radius * torch.sin(angle)  # independent unit normals (Box and Muller)
        chosen = parts.gather(-2, k[..., None, None].expand(*k.shape, 1, parts.shape[-1]))[..., 0, :]
        correlation, rest = chosen[..., 1], chosen[..., 2]
        correlated = torch.stack([x, correlation * x + torch.sqrt(rest) * y], dim=-1)
        spread = torch.exp(chosen[..., 5:] - bias) * math.sqrt(temperature)
        return torch.cat([chosen[..., 3:5] + spread * correlated, lifted[..., None]], dim=-1)

    def next_input(self, drawn: Tensor) -> Tensor:
        """The points themselves."""
        return drawn

    def draw(self) -> Tensor:
        """(..., 3): one point from each, on the device of the mixture."""
        k = F.one_hot(gumbel_argmax(self.log_weights), self.log_weights.shape[-1]).to(self.means.dtype)
        mean, log_deviation = ((part * k[..., None]).sum(-2) for part in (self.means, self.log_deviations))
        correlation, rest = ((part * k).sum(-1) for part in (self.correlation, self.rest))
        x, y = torch.randn_like(mean).unbind(-1)
        moved = mean + log_deviation.exp() * torch.stack([x, correlation * x + rest.sqrt() * y], dim=-1)
        lifted = torch.rand_like(self.pen) < torch.sigmoid(self.pen)
        return torch.cat([moved, lifted[..., None].to(moved.dtype)], dim=-1)


class Halting(NamedTuple):
    """The distribution of the next point and of whether it is the last: a stroke mixture and a Bernoulli."""

    mixture: StrokeMixture
    halt: Tensor
    """(...): log-odds that the next point is the last."""

    @property
    def pen(self) -> Tensor:
        """(...): log-odds of pen_up = 1."""
        return self.mixture.pen

    def log_prob(self, x: Tensor) -> Tensor:
        """(...): log-density of points (..., 4): x, y, pen and 1 at the last; of points (..., 3): without the last."""
        density = self.mixture.log_prob(x[..., :3])
        if x.shape[-1] == 3:
            return density
        ends = F.binary_cross_entropy_with_logits(self.halt, x[..., 3].to(self.halt.dtype), reduction="none")
        return density - ends

    def sample(
        self, generator: torch.Generator | None = None, *, temperature: float = 1.0, bias: float = 0.0
    ) -> Tensor:
        """(..., 4) float64: one point from each, and 1 if it is the last; at ``temperature`` 0 the likelier of both."""
        uniform = _uniform(self.halt, DRAWS + 1, generator)
        point = self.mixture.made_of(uniform[..., :DRAWS], temperature, bias)
        [halt] = for_draws([self.halt])
        last = _happens(halt, uniform[..., DRAWS], temperature)
        return torch.cat([point, last[..., None]], dim=-1)

    def next_input(self, drawn: Tensor) -> Tensor:
        """(..., 3): the points; a halt is not read."""
        return drawn[..., :POINT_SIZE]

    def draw(self) -> Tensor:
        """(..., 3): one point from each, on the device of the mixture."""
        return self.mixture.draw()


def _uniform(like: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """(..., count) float64 on the CPU: drawn between 0 and 1."""
    return torch.rand((*like.shape, count), dtype=torch.float64, generator=generator)


def _happens(log_odds: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """(...): 1 where an event happens; at temperature 0 where it is the likelier of both."""
    happens = log_odds > 0 if temperature == 0 else uniform < torch.sigmoid(log_odds / temperature)
    return happens.to(log_odds.dtype)
