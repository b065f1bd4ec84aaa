"""Echo state network: a fixed random reservoir of which only the output is trained, with the interface of HMLSTM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from hmrnn.config.checks import NotNegative, Positive
from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline, Cell
from hmrnn.nn.checks import argument
from hmrnn.nn.recurrent import declared


@declared
class EchoStateNetwork(Baseline):
    r"""A reservoir whose weights are drawn and never trained (Jaeger, 2001).

    .. math::
        h_t = \tanh(U h_{t-1} + W x_t + b), \qquad \max |\lambda(U)| = \rho

    ρ, the spectral radius, says how long the reservoir remembers. No gradient passes through it: neither to its weights
    nor, except within :func:`differentiable`, to its input. In a model the embedding stays as it was drawn, and the
    output module is trained by gradient or, with ``model.ridge``, a linear output is fitted by
    :func:`ridge_regression`.

    Args:
        spectral_radius: ρ.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Weights, for layer l counted
    from 0: ``U.l`` (H, H), ``W.l`` (H, size below), ``b.l`` (H); they are stored with the model.
    """

    differentiable = False
    """Whether a gradient reaches the input."""

    spectral_radius: Positive = 0.9

    def make(self) -> None:
        super().make()
        self.requires_grad_(False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the reservoir: U normal with the spectral radius, W and b uniform."""
        for U, W, b in zip(self.U, self.W, self.b):
            draw_reservoir(U, self.spectral_radius)
            nn.init.uniform_(W, -1, 1)
            W.div_(W.shape[1] ** 0.5)
            nn.init.uniform_(b, -0.1, 0.1)

    def layer(self, *given: Any) -> tuple[Tensor, ...]:
        with torch.set_grad_enabled(self.differentiable and torch.is_grad_enabled()):
            return super().layer(*given)

    def cell(self, l: int) -> Cell:
        U = self._dropped(self.U[l])
        return lambda fed, h, c: (torch.tanh(F.linear(h, U).to(h.dtype) + fed), c)


@contextmanager
def differentiable(module: nn.Module) -> Iterator[None]:
    """Let gradients reach the inputs of the reservoirs in ``module``, to see what an answer depends on."""
    found = [one for one in module.modules() if isinstance(one, EchoStateNetwork)]
    for one in found:
        one.differentiable = True
    try:
        yield
    finally:
        for one in found:
            one.differentiable = False


@torch.no_grad()
def draw_reservoir(U: Tensor, radius: float) -> None:
    """Fill ``U`` with normal numbers, scaled so that the largest absolute eigenvalue is ``radius``.

    A ``TorchFunctionMode`` may take its place, as in torch's own initialisations.
    """
    if has_torch_function_unary(U):
        handle_torch_function(draw_reservoir, (U,), U, radius)
        return
    if U.is_meta:
        return
    drawn = torch.randn(U.shape, device=U.device, dtype=torch.float64)
    largest = torch.linalg.eigvals(drawn.cpu()).abs().max().to(U.device)
    U.copy_(drawn * (radius / largest))


def ridge_regression(x: Tensor, y: Tensor, penalty: float = 1e-3) -> tuple[Tensor, Tensor]:
    """The linear map with the least squared error plus ``penalty`` times its squared weights: W (K, D) and b (K,).

    Args:
        x: (..., D), such as h of all layers of a reservoir side by side, in the steps that count.
        y: (..., K), what W x + b is to be.
        penalty: at least 0; b has none.

    Example::

        >>> esn = hmrnn.nn.EchoStateNetwork(1, 50, 1)
        >>> x = torch.randn(200, 1, 1)
        >>> out, _ = esn(x)
        >>> W, b = hmrnn.nn.ridge_regression(out.hidden[0][5:], x[3:-2])    # recall the input of two steps ago
        >>> bool(((out.hidden[0][5:] @ W.T + b - x[3:-2]) ** 2).mean() < 0.1)
        True
    """
    if x.shape[:-1] != y.shape[:-1]:
        raise InputError(f"x and y must have as many rows; got {tuple(x.shape[:-1])} and {tuple(y.shape[:-1])}")
    argument("penalty", penalty, NotNegative)
    rows, wanted = x.detach().flatten(0, -2).double(), y.detach().flatten(0, -2).double()
    rows = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
    W, b = solve_ridge(rows.T @ rows, rows.T @ wanted, penalty)
    return W.to(x.dtype), b.to(x.dtype)


def solve_ridge(gram: Tensor, moment: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """W (K, D) and b (K,) of :func:`ridge_regression` from sums over the rows, in float64.

    The same sums always give the same bytes, which ``torch.linalg.lstsq`` does not promise. Directions in which the
    rows do not vary get no weight.

    Args:
        gram: (D + 1, D + 1), the sum of x xᵀ, where x ends in a 1.
        moment: (D + 1, K), the sum of x yᵀ.
        penalty: of :func:`ridge_regression`.
    """
    count, mean, target = gram[-1, -1], gram[-1, :-1] / gram[-1, -1], moment[-1] / gram[-1, -1]
    centred = gram[:-1, :-1] - count * mean[:, None] * mean
    centred = centred + penalty * torch.eye(len(mean), dtype=gram.dtype, device=gram.device)
    values, vectors = torch.linalg.eigh(centred)
    used = values > values.abs().max() * len(values) * torch.finfo(values.dtype).eps
    inverse = torch.where(used, values, torch.inf).reciprocal()
    W = (vectors * inverse @ (vectors.T @ (moment[:-1] - count * mean[:, None] * target))).T
    return W, target - W @ mean
