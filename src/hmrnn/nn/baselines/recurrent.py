"""LSTM and GRU as torch computes them, with the interface of HMLSTM."""

from __future__ import annotations

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hmrnn.errors import InputError
from hmrnn.nn.baselines.base import Baseline, LayerInput, Sizes
from hmrnn.nn.checks import readable
from hmrnn.nn.weights import orthogonal


class _OfTorch(Baseline):
    """A stack of one-layer networks of torch, so that h of every layer is available.

    On a CPU they run in float32 even under autocast, as not every CPU has kernels for less.
    """

    kind: type[nn.LSTM] | type[nn.GRU]
    gates: int

    def __init__(self, input_size: int, hidden_size: Sizes, num_layers: int = 3, **options: Any) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        sizes = zip(self._below, self.hidden_sizes)
        self.layers = nn.ModuleList(self.kind(below, size, **self._made) for below, size in sizes)
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

    @torch.no_grad()
    def load_stacked(self, stacked: nn.RNNBase) -> None:
        """Copy the weights of a stacked network of torch of the same kind and sizes."""
        if not isinstance(stacked, self.kind) or stacked.bidirectional or not stacked.bias or stacked.proj_size:
            raise InputError(f"expected a one-way nn.{self.kind.__name__} with biases, no projection; got {stacked}")
        if (stacked.input_size, (stacked.hidden_size,) * stacked.num_layers) != (self.input_size, self.hidden_sizes):
            raise InputError(f"the sizes must be those of {self}; got {stacked}")
        for l, layer in enumerate(self.layers):
            for name, parameter in layer.named_parameters():
                parameter.copy_(getattr(stacked, name.replace("_l0", f"_l{l}")))

    def layer(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c, lengths, _, draws = given
        with torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else contextlib.nullcontext():
            if lengths is None:
                return self._run(l, x, h, c, draws)
            if not readable(lengths):  # in a CUDA graph and under torch.func nothing can be packed
                return self._padded(l, given)
            packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
            steps, h, c = self._run(l, packed, h, c, draws)
            return pad_packed_sequence(steps, total_length=len(x))[0], h, c

    def _padded(self, l: int, given: LayerInput) -> tuple[Tensor, Tensor, Tensor]:
        """As :meth:`layer`, reading the padding too; c of an LSTM after the last step is not known: it and its gradient
        are NaN."""
        x, h, c, lengths, _, draws = given
        assert lengths is not None
        steps, _, _ = self._run(l, x, h, c, draws)
        h = steps.gather(0, (lengths - 1)[None, :, None].expand(1, -1, steps.shape[-1]))[0]
        active = torch.arange(len(x), device=x.device)[:, None] < lengths
        return steps * active[..., None], h, c if self.kind is nn.GRU else h * torch.nan

    def _run(self, l: int, x: Any, h: Tensor, c: Tensor, draws: bool) -> tuple[Any, Tensor, Tensor]:
        """Run layer ``l`` by torch's function instead of its module, with weights after weight drop.

        ``torch.func.functional_call`` of the module would move its weights to new memory on a GPU, where captured
        graphs do not find them.
        """
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        W, U, *biases = (getattr(self.layers[l], name) for name in names)
        weights = [W, self._dropped(U, draws), *biases]
        run: Any = torch.lstm if self.kind is nn.LSTM else torch.gru
        quiet = _in_pieces() if self.weight_drop > 0 and draws and h.is_cuda else contextlib.nullcontext()
        learns = torch.is_grad_enabled()  # as "training": without it cuDNN gives no gradient
        once: tuple[Any, ...] = (True, 1, 0.0, learns, False)  # biases, layers, dropout, training, one way
        if isinstance(x, Tensor):
            with quiet:
                steps, *after = run(x, self._before(h, c), weights, *once, False)
        else:  # packed, the longest sequence first
            order, back = x.sorted_indices, x.unsorted_indices
            with quiet:
                data, *after = run(x.data, x.batch_sizes, self._before(h[order], c[order]), weights, *once)
            steps, after = x._replace(data=data), [a[:, back] for a in after]
        return steps, after[0][0], after[1][0] if len(after) > 1 else c

    @abstractmethod
    def _before(self, h: Tensor, c: Tensor) -> Any:
        """The state as torch's function takes it."""


@contextlib.contextmanager
def _in_pieces() -> Iterator[None]:
    """Suppress cuDNN's warning about weights in several pieces of memory, which weight drop always makes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield


class LSTM(_OfTorch):
    r"""A stacked LSTM, as ``torch.nn.LSTM`` computes it; ``load_stacked`` takes the weights of one.

    .. math::
        i, f, g, o = \sigma(\cdot), \sigma(\cdot), \tanh(\cdot), \sigma(\cdot) \text{ of the four parts of }
        W x_t + U h_{t-1} + b \qquad c_t = f c_{t-1} + i g \qquad h_t = o \tanh c_t

    Arguments and outputs: see :class:`Baseline`.
    """

    kind, gates = nn.LSTM, 4

    def _before(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return h[None], c[None]


class GRU(_OfTorch):
    r"""A stacked GRU, as ``torch.nn.GRU`` computes it; ``load_stacked`` takes the weights of one.

    .. math::
        r, u = \sigma(W_r x_t + U_r h_{t-1} + b_r), \sigma(W_u x_t + U_u h_{t-1} + b_u) \qquad
        n = \tanh(W_n x_t + b_n + r (U_n h_{t-1} + b'_n)) \qquad h_t = (1 - u) n + u h_{t-1}

    Arguments and outputs: see :class:`Baseline`.
    """

    kind, gates = nn.GRU, 3

    def _before(self, h: Tensor, c: Tensor) -> Tensor:
        return h[None]
