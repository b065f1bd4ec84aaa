"""LSTM, with layer normalisation or without, and GRU, with the interface of HMLSTM."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn.config.checks import Share
from hmrnn.nn import lstm
from hmrnn.nn.baselines.base import Baseline
from hmrnn.nn.output import at_steps
from hmrnn.nn.recurrent import declared
from hmrnn.ops.interface import readable, within


@declared
class LSTM(Baseline):
    """A stacked LSTM: each layer is an :class:`hmrnn.nn.LSTM`, which has the equations.

    Arguments and outputs: see :class:`Baseline`; ``layer_norm``, ``zoneout`` and ``engine`` are those of
    :class:`hmrnn.nn.LSTM`.
    """

    looks_up = True
    gates = 4

    layer_norm: bool = False
    zoneout: Share = 0.0
    engine: lstm.Engine = "auto"  # type: ignore[assignment]

    def make(self) -> None:
        sizes = zip(self._below, self.hidden_sizes)
        self.layers: Any = nn.ModuleList(lstm.LSTM(*pair, layer_norm=self.layer_norm, **self._made) for pair in sizes)

    def reset_parameters(self) -> None:
        """Initialise as :class:`hmrnn.nn.LSTM` does."""
        for layer in self.layers:
            layer.reset_parameters()

    def engine_for(self, device: torch.device) -> str:
        (w,) = self.layers[0].layers()
        return lstm.engine_of(self.engine, w, self.zoneout)

    def layer(self, l: int, x: Any, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        (w,) = self.layers[l].dropped(self.weight_drop)
        return lstm.run_layer(x, w, h, c, lengths, self.engine, self.training, self.zoneout)


@declared
class GRU(Baseline):
    r"""A stacked GRU, as ``torch.nn.GRU`` computes it.

    .. math::
        r, u = \sigma(W_r x_t + U_r h_{t-1} + b_r), \sigma(W_u x_t + U_u h_{t-1} + b_u) \qquad
        n = \tanh(W_n x_t + b_n + r (U_n h_{t-1} + b'_n)) \qquad h_t = (1 - u) n + u h_{t-1}

    Arguments and outputs: see :class:`Baseline`. It is a stack of one-layer networks of torch, so that h of every layer
    is available. On a CPU they run in float32 even under autocast, as not every CPU has kernels for less.
    """

    gates = 3

    def make(self) -> None:
        sizes = zip(self._below, self.hidden_sizes)
        self.layers = nn.ModuleList(nn.GRU(below, size, **self._made) for below, size in sizes)
        self.reset_parameters()

    def layer(self, l: int, x: Any, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        W, U, *biases = (getattr(self.layers[l], name) for name in names)
        run = partial(lstm.by_torch, torch.gru, x, (h,), [W, self._dropped(U), *biases])
        if lengths is None or readable(lengths):
            return *run(lengths), c
        steps, _ = run(None)  # in a CUDA graph and under torch.func nothing can be packed: read padding, too
        return steps * within(lengths, len(x))[..., None], at_steps(steps, lengths[None] - 1)[0], c
