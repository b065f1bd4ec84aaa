"""LSTM, with layer normalisation or without, and GRU, with the interface of HMLSTM."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hmrnn.config.checks import Share
from hmrnn.nn import lstm
from hmrnn.nn.baselines.base import Baseline, LayerInput
from hmrnn.nn.checks import readable
from hmrnn.nn.weights import orthogonal
from hmrnn.ops import Symbols
from hmrnn.ops.interface import within


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
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
        self.layers = nn.ModuleList(lstm.LSTM(*pair, layer_norm=self.layer_norm, **self._made) for pair in sizes)

    def reset_parameters(self) -> None:
        """Initialise as :class:`hmrnn.nn.LSTM` does."""
        for layer in self.layers:
            cast(lstm.LSTM, layer).reset_parameters()

    def engine_for(self, device: torch.device) -> str:
        (w,) = cast(lstm.LSTM, self.layers[0]).cells()
        return lstm.engine_of(self.engine, w, self.zoneout)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, embedding, draws = given
        (w,) = cast(lstm.LSTM, self.layers[l]).cells()
        fed = x if embedding is None else Symbols(x, embedding)
        return lstm.run_layer(fed, w, h, c, lengths, self.engine, draws, self.zoneout, self.weight_drop)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
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

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise with orthogonal gate blocks and zero biases, as HMLSTM does."""
        for name, parameter in self.layers.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            else:
                for block in parameter.chunk(self.gates):
                    orthogonal(block)

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        with torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else contextlib.nullcontext():
            if lengths is None:
                return *self._run(l, x, h, draws), c
            if not readable(lengths):  # in a CUDA graph and under torch.func nothing can be packed: read padding, too
                steps, _ = self._run(l, x, h, draws)
                h = steps.gather(0, (lengths - 1)[None, :, None].expand(1, -1, steps.shape[-1]))[0]
                return steps * within(lengths, len(x))[..., None], h, c
            packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
            steps, h = self._run(l, packed, h, draws)
            return pad_packed_sequence(steps, total_length=len(x))[0], h, c

    def _run(self, l: int, x: Any, h: Tensor, draws: bool) -> tuple[Any, Tensor]:
        """Run layer ``l`` by torch's function instead of its module, with weights after weight drop.

        ``torch.func.functional_call`` of the module would move its weights to new memory on a GPU, where captured
        graphs do not find them.
        """
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        W, U, *biases = (getattr(self.layers[l], name) for name in names)
        weights = [W, self._dropped(U, draws), *biases]
        quiet = lstm.in_pieces() if self.weight_drop > 0 and draws and h.is_cuda else contextlib.nullcontext()
        learns = torch.is_grad_enabled()  # as "training": without it cuDNN gives no gradient
        once = (True, 1, 0.0, learns, False)  # biases, layers, dropout, training, one way
        if isinstance(x, Tensor):
            with quiet:
                steps, after = torch.gru(x, h[None], weights, *once, False)
            return steps, after[0]
        with quiet:  # packed, the longest sequence first
            data, after = torch.gru(x.data, x.batch_sizes, h[None, x.sorted_indices], weights, *once)
        return x._replace(data=data), after[0][x.unsorted_indices]
