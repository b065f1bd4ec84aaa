"""Time-delay network, a causal convolution, with the interface of HMLSTM."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes
from hmrnn.nn.checks import positive
from hmrnn.nn.weights import orthogonal


class TimeDelayNetwork(Baseline):
    r"""A stack of causal convolutions over time (Lang and Hinton, 1988), without recurrence.

    .. math::
        h_t = \tanh\left(\sum_{j=0}^{k-1} K_j x_{t-j} + b\right)

    L layers see the last L(k - 1) + 1 steps.

    Args:
        kernel: k, the steps that a layer reads of the one below.

    The other arguments, and the outputs: see :class:`hmrnn.nn.baselines.base.Baseline`; ``state.c`` holds the last
    k - 1 inputs of the layer, the oldest first. Parameters, for layer l counted from 0: ``K.l`` (H, k, size below), the
    newest step last, and ``b.l`` (H).
    """

    def __init__(
        self, input_size: int, hidden_size: Sizes, num_layers: int = 3, *, kernel: int = 8, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.kernel = positive("kernel", kernel)
        self.K = self._new(self.hidden_sizes, [self.kernel] * self.num_layers, self._below)
        self.b = self._new(self.hidden_sizes)
        self.reset_parameters()

    @property
    def cell_sizes(self) -> tuple[int, ...]:
        return tuple((self.kernel - 1) * size for size in self._below)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise: an orthogonal matrix of all steps together, zero biases."""
        for K, b in zip(self.K, self.b):
            orthogonal(K.view(len(K), -1))
            nn.init.zeros_(b)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, _ = given
        T, B, size = x.shape
        before = c.view(B, self.kernel - 1, size).transpose(0, 1)
        read = torch.cat([before.to(x.dtype), x])  # (k - 1 + T, B, size)
        windows = read.unfold(0, self.kernel, 1)  # (T, B, size, k)
        K = self.K[l].transpose(1, 2)  # (H, size, k)
        hidden = torch.tanh(F.linear(windows.flatten(2), K.flatten(1)).to(h.dtype) + self.b[l])
        if lengths is None:
            return hidden, hidden[-1], read[T:].transpose(0, 1).flatten(1)
        hidden = hidden * (torch.arange(T, device=x.device)[:, None] < lengths)[..., None]
        row = torch.arange(B, device=x.device)
        kept = lengths + torch.arange(self.kernel - 1, device=x.device)[:, None]  # (k - 1, B)
        return hidden, hidden[lengths - 1, row], read[kept, row].transpose(0, 1).flatten(1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, kernel={self.kernel}"
