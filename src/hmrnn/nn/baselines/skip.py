"""RNN with skip connections through time, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes, unroll
from hmrnn.nn.checks import positive
from hmrnn.nn.weights import orthogonal


class SkipRNN(Baseline):
    r"""An RNN that also reads its own state of d steps ago (Lin et al., 1996).

    .. math::
        h_t = \tanh(U h_{t-1} + V h_{t-d} + W x_t + b)

    Gradients reach d steps back in one step.

    Args:
        delay: d.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds h of the last
    d steps, (B, dH), the oldest first. Parameters, for layer l counted from 0: ``U.l``, ``V.l`` (H, H), ``W.l``
    (H, size below), ``b.l`` (H).
    """

    def __init__(
        self, input_size: int, hidden_size: Sizes, num_layers: int = 3, *, delay: int = 8, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.delay = positive("delay", delay)
        H = self.hidden_sizes
        self.U = self._new(H, H)
        self.V = self._new(H, H)
        self.W = self._new(H, self._below)
        self.b = self._new(H)
        self.reset_parameters()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return tuple(self.delay * size for size in self.hidden_sizes)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal matrices, U and V halved so that the state does not grow; zero biases."""
        for U, V, W, b in zip(self.U, self.V, self.W, self.b):
            for matrix in (U, V, W):
                orthogonal(matrix)
            U.mul_(0.5)
            V.mul_(0.5)
            nn.init.zeros_(b)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        U, V, size = self._dropped(self.U[l], draws), self._dropped(self.V[l], draws), self.hidden_sizes[l]

        def step(fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh((F.linear(h, U) + F.linear(c[:, :size], V)).to(h.dtype) + fed)
            return h, torch.cat([c[:, size:], h], dim=-1)

        hidden, (h, c) = unroll(F.linear(x, self.W[l]).to(h.dtype) + self.b[l], (h, c), lengths, step)
        return hidden, h, c

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, delay={self.delay}"
