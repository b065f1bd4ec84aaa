"""RNN whose only recurrence is from its output, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes, unroll
from hmrnn.nn.checks import positive
from hmrnn.nn.weights import orthogonal


class OutputRNN(Baseline):
    r"""An RNN that remembers nothing but its last output (Jordan, 1986).

    .. math::
        h_t = \tanh(U o_{t-1} + W x_t + b) \qquad o_t = V h_t + d

    o is smaller than h, so what it leaves out of the past is lost.

    Args:
        outputs: the size of o, in every layer; by default a quarter of the layer.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds o. For
    layer l counted from 0 the parameters are ``U.l`` (H, outputs), ``V.l`` (outputs, H), ``W.l`` (H, size below),
    ``b.l`` (H) and ``d.l`` (outputs).
    """

    def __init__(
        self, input_size: int, hidden_size: Sizes, num_layers: int = 3, *, outputs: int | None = None, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        given = None if outputs is None else positive("outputs", outputs)
        self._outputs = tuple(given or max(1, size // 4) for size in self.hidden_sizes)
        H, O = self.hidden_sizes, self._outputs
        self.U, self.V = self._new(H, O), self._new(O, H)
        self.W = self._new(H, self._below)
        self.b, self.d = self._new(H), self._new(O)
        self.reset_parameters()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return self._outputs

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal matrices, zero biases."""
        for matrices in (self.U, self.V, self.W):
            for matrix in matrices:
                orthogonal(matrix)
        for biases in (self.b, self.d):
            for bias in biases:
                nn.init.zeros_(bias)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, o, lengths, _, draws = given
        U, V, d = self._dropped(self.U[l], draws), self.V[l], self.d[l]

        def step(fed: Tensor, h: Tensor, o: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(F.linear(o, U).to(h.dtype) + fed)
            return h, F.linear(h, V).to(h.dtype) + d

        hidden, (h, o) = unroll(F.linear(x, self.W[l]).to(h.dtype) + self.b[l], (h, o), lengths, step)
        return hidden, h, o
