"""LSTM with layer normalisation, with the interface and the engines of HMLSTM."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
from torch import Tensor, nn

from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes
from hmrnn.nn.dropout import probability
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import LayerWeights, State, Symbols, choose_engine, hmlstm


class _WithUnitGains(HMLSTM):
    """HMLSTM whose gain of U is initialised to 1, as is usual for an LSTM."""

    _recurrent_gain = 1.0


class LayerNormLSTM(Baseline):
    r"""A stacked LSTM with layer normalisation (Ba, Kiros and Hinton, 2016).

    .. math::
        f, i, o, g = \sigma, \sigma, \sigma, \tanh \text{ of the four parts of }
        LN(U h_{t-1}) + LN(W x_t) + b \qquad c_t = f c_{t-1} + i g \qquad h_t = o \tanh LN(c_t)

    Each layer is an :class:`hmrnn.HMLSTM` of one layer, which has no detector and does UPDATE at every step: the
    equations above. So it runs on the engines of HMLSTM. All gains are initialised to 1.

    Arguments and outputs: see :class:`Baseline`; ``zoneout`` and ``engine`` are those of :class:`hmrnn.HMLSTM`.
    """

    looks_up = layer_norm = True
    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: Sizes,
        num_layers: int = 3,
        *,
        zoneout: float = 0.0,
        engine: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.zoneout = probability("zoneout", zoneout)
        self.layers = nn.ModuleList(
            _WithUnitGains(*sizes, num_layers=1, layer_norm=True, engine=engine, **self._made)
            for sizes in zip(self._below, self.hidden_sizes)
        )

    def reset_parameters(self) -> None:
        """Initialise as HMLSTM does, but with gains of 1."""
        for layer in self.layers:
            cast(HMLSTM, layer).reset_parameters()

    @property
    def engine(self) -> str:
        first = cast(HMLSTM, self.layers[0])
        return choose_engine(first.engine, first.a.device, first.options(), first.a.dtype)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, embedding, draws = given
        layer = cast(HMLSTM, self.layers[l])
        (w,) = layer.layers()
        w, kept = LayerWeights(**(w._asdict() | {"U": self._dropped(w.U, draws)})), None
        if self.zoneout > 0 and draws:
            kept = [torch.rand(*x.shape[:2], h.shape[1], device=x.device) < self.zoneout]
        result = hmlstm(
            x if embedding is None else Symbols(x, embedding),
            [w],
            State((h,), (c,), h.new_zeros(len(h), 0)),
            dataclasses.replace(layer.options(), zoneout=self.zoneout),
            lengths=lengths,
            kept=kept,
            engine=layer.engine,
        )
        return result.hidden[0], result.state.h[0], result.state.c[0]
