"""Heads: modules that turn the hidden states of all layers into outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.nn.bidirectional import States
from hmrnn.nn.checks import Sizes, argument
from hmrnn.nn.output import Output
from hmrnn.ops import State

Hidden: TypeAlias = Tensor | PackedSequence


class ReadOut(nn.Module):
    """A linear map of h of all layers side by side: the output of an HM-LSTM for a task of your own.

    It gives an output per step; :class:`hmrnn.nn.SequenceReadOut` gives one per sequence.

    ``out.hidden[-1]`` alone is a poor output: the top layer changes only where segments of the layers below end, and
    not at all if a detector below it never fires.

    Args:
        hidden_sizes: sizes of the layers, ``rnn.output_sizes``.
        output_size: size of the output, such as the number of classes.
        bias: whether the map has a bias.

    Input: one of the two that an HMLSTM returns. ``out`` gives an output for every step, (T, B, output_size), packed if
    it is packed; ``state`` gives one for the last step of each sequence, (B, output_size); of two directions, for the
    step that each read last. Or L tensors (..., H_l), the lowest layer first, such as ``out.hidden`` and ``state.h``.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30, 40))
        >>> read_out = hmrnn.nn.ReadOut(rnn.output_sizes, 5)
        >>> out, state = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> read_out(out).shape, read_out(state).shape
        (torch.Size([50, 4, 5]), torch.Size([4, 5]))
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.hidden_sizes = argument("hidden_sizes", hidden_sizes, Sizes)
        size, bias = argument("output_size", output_size, Count), argument("bias", bias, bool)
        self.linear = nn.Linear(sum(self.hidden_sizes), size, bias=bias)

    def forward(self, out: Output | State | States | Sequence[Hidden]) -> Hidden:
        hidden = _layers(out)
        packed = hidden[0] if len(hidden) and isinstance(hidden[0], PackedSequence) else None
        tensors = [h.data if isinstance(h, PackedSequence) else h for h in hidden]
        sizes = tuple(h.shape[-1] for h in tensors)
        if sizes != self.hidden_sizes:
            wanted = f"a tensor of each layer, of sizes {self.hidden_sizes}"
            raise InputError(f"hidden must hold {wanted}; got {sizes}; give rnn.output_sizes")
        result = self.linear(torch.cat(tensors, dim=-1))
        return result if packed is None else packed._replace(data=result)


def _layers(given: Any) -> Any:
    """A tensor of each layer: those of an output or a state, else what was given."""
    if isinstance(given, Output):
        return given.hidden
    if isinstance(given, States):
        return [torch.cat(both, dim=-1) for both in zip(given.ahead.h, given.back.h)]
    if isinstance(given, tuple) and any(isinstance(a, Output) for a in given):
        raise InputError("give out or state, not both: out, state = rnn(x)")
    if isinstance(given, Hidden):
        raise InputError("give out or state, which have all layers; got one tensor: out, state = rnn(x)")
    return given.h if isinstance(given, State) else given
