"""LSTM with peepholes, and with coupled gates, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes, unroll
from hmrnn.nn.checks import truth
from hmrnn.nn.weights import orthogonal


class PeepholeLSTM(Baseline):
    r"""An LSTM whose gates see the cell (Gers and Schmidhuber, 2000).

    .. math::
        i, f = \sigma(U_{i,f} h_{t-1} + W_{i,f} x_t + p_{i,f} c_{t-1} + b_{i,f}) \qquad
        g = \tanh(U_g h_{t-1} + W_g x_t + b_g)

        c_t = f c_{t-1} + i g \qquad o = \sigma(U_o h_{t-1} + W_o x_t + p_o c_t + b_o) \qquad h_t = o \tanh c_t

    Args:
        coupled: f = 1 - i: the cell forgets as much as it takes in (Greff et al., 2017).

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l counted
    from 0: ``U.l`` (4H, H), ``W.l`` (4H, size below), ``b.l`` (4H), rows in the order i, o, g, f; ``p.l`` (3H) in the
    order i, o, f. Coupled gates have no f.
    """

    def __init__(
        self, input_size: int, hidden_size: Sizes, num_layers: int = 3, *, coupled: bool = False, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.coupled = truth("coupled", coupled)
        self.gates = gates = 3 if coupled else 4
        rows = [gates * size for size in self.hidden_sizes]
        self.U, self.W, self.b = self._new(rows, self.hidden_sizes), self._new(rows, self._below), self._new(rows)
        self.p = self._new([(gates - 1) * size for size in self.hidden_sizes])
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal gate blocks, zero biases and peepholes."""
        for l, size in enumerate(self.hidden_sizes):
            for matrix in (self.U[l], self.W[l]):
                for block in matrix.split(size):
                    orthogonal(block)
            nn.init.zeros_(self.b[l])
            nn.init.zeros_(self.p[l])

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        U, size = self._dropped(self.U[l], draws), self.hidden_sizes[l]
        p_i, p_o, *p_f = self.p[l].split(size)

        def step(fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            s_i, s_o, s_g, *s_f = (F.linear(h, U).to(h.dtype) + fed).split(size, dim=-1)
            i = torch.sigmoid(s_i + p_i * c)
            f = 1 - i if self.coupled else torch.sigmoid(s_f[0] + p_f[0] * c)
            c = f * c + i * torch.tanh(s_g)
            o = torch.sigmoid(s_o + p_o * c)
            return o * torch.tanh(c), c

        hidden, (h, c) = unroll(F.linear(x, self.W[l]).to(h.dtype) + self.b[l], (h, c), lengths, step)
        return hidden, h, c

    def extra_repr(self) -> str:
        return super().extra_repr() + (", coupled=True" if self.coupled else "")
