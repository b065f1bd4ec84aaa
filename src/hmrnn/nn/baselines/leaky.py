"""Leaky integrator units with fixed time constants, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes, unroll
from hmrnn.nn.weights import orthogonal


class LeakyRNN(Baseline):
    r"""Leaky integrator units with a spectrum of time constants.

    .. math::
        h_t = (1 - 1/\tau) h_{t-1} + (1/\tau) \tanh(U h_{t-1} + W x_t + b)

    τ grows by equal factors from 1 (a plain RNN) in the first unit of a layer to ``time_constant`` in the last.

    Args:
        time_constant: τ of the slowest unit, in steps.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`. Parameters, for layer l counted
    from 0: ``U.l`` (H, H), ``W.l`` (H, size below), ``b.l`` (H).
    """

    def __init__(
        self, input_size: int, hidden_size: Sizes, num_layers: int = 3, *, time_constant: float = 64.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        if not 1 <= time_constant < float("inf"):
            raise InputError(f"time_constant must be at least 1 and finite; got {time_constant}")
        self.time_constant = time_constant
        H = self.hidden_sizes
        self.U = self._new(H, H)
        self.W = self._new(H, self._below)
        self.b = self._new(H)
        for l, size in enumerate(H):
            self.register_buffer(f"rate_{l}", torch.empty(size, **self._made), persistent=False)  # 1/τ
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: orthogonal matrices, zero biases, and the rates 1/τ."""
        for l, size in enumerate(self.hidden_sizes):
            rate = self.get_buffer(f"rate_{l}")
            place = torch.arange(size, device=rate.device, dtype=torch.float64) / max(1, size - 1)  # from 0 to 1
            rate.copy_(self.time_constant**-place)
            orthogonal(self.U[l])
            orthogonal(self.W[l])
            nn.init.zeros_(self.b[l])

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        U, rate = self._dropped(self.U[l], draws), self.get_buffer(f"rate_{l}")

        def step(fed: Tensor, h: Tensor) -> tuple[Tensor]:
            return (torch.lerp(h, torch.tanh(F.linear(h, U).to(h.dtype) + fed), rate),)

        hidden, (h,) = unroll(F.linear(x, self.W[l]).to(h.dtype) + self.b[l], (h,), lengths, step)
        return hidden, h, c

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, time_constant={self.time_constant:g}"
