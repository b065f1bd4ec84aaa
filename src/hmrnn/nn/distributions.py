"""Where the pen goes next: a mixture of bivariate Gaussians, and a Bernoulli for lifting it (Graves, 2013, section 4).

Everything is computed in float32 or better, whatever comes in, and by logarithms, so that neither a far point nor a
narrow Gaussian gives an infinity, up to 10¹⁵ deviations of the training steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError

FLOOR = 1e-3
"""No deviation is smaller, in units of the training deviation: steps of a digitiser are whole numbers, and a Gaussian
that narrows around one of them would gain likelihood without end."""
MAX_CORRELATION = 0.9999
PER_COMPONENT = 6
"""Numbers a component takes: weight, two means, two deviations, correlation."""


def head_size(components: int) -> int:
    """How many numbers describe a mixture of so many components."""
    return PER_COMPONENT * components + 1


class Mixture(NamedTuple):
    """Distributions of the next point (x, y, pen); any leading dimensions, K components."""

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
    def from_vector(cls, vector: Tensor) -> Mixture:
        """From what a network puts out: (..., 6K+1) numbers of any size."""
        components, remainder = divmod(vector.shape[-1] - 1, PER_COMPONENT)
        if components < 1 or remainder:
            raise InputError(f"a mixture takes 6K+1 numbers with K at least 1; got {vector.shape[-1]}")
        vector = vector if vector.dtype == torch.float64 else vector.float()
        weight, mean_x, mean_y, deviation_x, deviation_y, skew = (
            vector[..., :-1].unflatten(-1, (6, components)).unbind(-2)
        )
        bound = MAX_CORRELATION
        fade = torch.exp(-2 * skew.abs())
        sech2 = 4 * fade / (1 + fade) ** 2  # 1 - tanh²
        deviations = torch.stack([deviation_x, deviation_y], dim=-1)
        return cls(
            log_weights=torch.log_softmax(weight, dim=-1),
            means=torch.stack([mean_x, mean_y], dim=-1),
            log_deviations=torch.logaddexp(deviations, torch.full_like(deviations, math.log(FLOOR))),
            correlation=bound * torch.tanh(skew),
            rest=(1 - bound**2) + bound**2 * sech2,
            pen=vector[..., -1],
        )

    def log_density(self, points: Tensor) -> Tensor:
        """(...): log of the density of ``points`` (..., 3): x, y and 1 where the pen is lifted after the point."""
        points = points.to(self.means.dtype)
        z = (points[..., None, :2] - self.means) * torch.exp(-self.log_deviations)  # (..., K, 2)
        x, y = z.unbind(-1)
        across = y - self.correlation * x  # what x leaves open of y: a square, so no difference of large numbers
        exponent = x**2 + across**2 / self.rest
        log_norm = self.log_deviations.sum(-1) + 0.5 * torch.log(self.rest) + math.log(2 * math.pi)
        position = torch.logsumexp(self.log_weights - log_norm - 0.5 * exponent, dim=-1)
        return position - F.binary_cross_entropy_with_logits(self.pen, points[..., 2], reduction="none")

    def sample(
        self, *, bias: float = 0.0, temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """(..., 3): one point drawn from each.

        ``bias`` is Graves's: deviations shrink by e^-bias and weights are sharpened, so that the writing gets neater.
        ``temperature`` raises every density to the power 1/temperature: below 1 safer, above 1 wilder; 0 takes the
        middle of the likeliest component and the likelier state of the pen. ``generator`` lives where the mixture does.
        """
        K = self.log_weights.shape[-1]
        if temperature == 0:
            k = self.log_weights.argmax(-1)
            pen = (self.pen > 0).to(self.pen.dtype)
        else:
            weights = torch.softmax(self.log_weights * ((1 + bias) / temperature), dim=-1)
            k = torch.multinomial(weights.reshape(-1, K), 1, generator=generator).reshape(self.pen.shape)
            uniform = torch.rand(self.pen.shape, dtype=self.pen.dtype, device=self.pen.device, generator=generator)
            pen = (uniform < torch.sigmoid(self.pen / temperature)).to(self.pen.dtype)
        shape = (*self.pen.shape, 2)
        normal = torch.randn(shape, dtype=self.pen.dtype, device=self.pen.device, generator=generator)
        which = k[..., None]  # (..., 1)
        mean, log_deviation = (
            a.gather(-2, which[..., None].expand(*which.shape, 2))[..., 0, :] for a in (self.means, self.log_deviations)
        )
        correlation, rest = (a.gather(-1, which)[..., 0] for a in (self.correlation, self.rest))
        x, y = normal.unbind(-1)
        correlated = torch.stack([x, correlation * x + torch.sqrt(rest) * y], dim=-1)
        spread = torch.exp(log_deviation - bias) * math.sqrt(temperature)
        return torch.cat([mean + spread * correlated, pen[..., None]], dim=-1)
