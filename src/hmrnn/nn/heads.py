"""Heads: modules that turn the hidden states of all layers into outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.errors import InputError
from hmrnn.nn.checks import positive

Hidden = TypeVar("Hidden", Tensor, PackedSequence)


class ReadOut(nn.Module):
    """A linear map of h of all layers side by side: the output of an HM-LSTM for a task of your own.

    It gives an output per step; :class:`hmrnn.nn.SequenceReadOut` gives one per sequence.

    ``out.hidden[-1]`` alone is a poor output: the top layer changes only where segments of the layers below end, and
    not at all if a detector below it never fires.

    Args:
        hidden_sizes: sizes of the layers, ``rnn.output_sizes``.
        output_size: size of the output, such as the number of classes.
        bias: whether the map has a bias.

    Input: L tensors (..., H_l), the lowest layer first. ``out.hidden`` gives an output for every step, (T, B,
    output_size), packed if it is packed; ``state.h`` gives one for the last step of each sequence, (B, output_size).

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30, 40))
        >>> read_out = hmrnn.nn.ReadOut(rnn.output_sizes, 5)
        >>> out, state = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> read_out(out.hidden).shape, read_out(state.h).shape
        (torch.Size([50, 4, 5]), torch.Size([4, 5]))
    """

    def __init__(self, hidden_sizes: Sequence[int], output_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.hidden_sizes = tuple(positive("hidden_sizes", size) for size in hidden_sizes)
        self.linear = nn.Linear(sum(self.hidden_sizes), positive("output_size", output_size), bias=bias)

    def forward(self, hidden: Sequence[Hidden]) -> Hidden:
        packed = hidden[0] if len(hidden) and isinstance(hidden[0], PackedSequence) else None
        tensors = [h.data if isinstance(h, PackedSequence) else h for h in hidden]
        sizes = tuple(h.shape[-1] for h in tensors)
        if sizes != self.hidden_sizes:
            raise InputError(f"hidden must hold a tensor of each layer, of sizes {self.hidden_sizes}; got {sizes}")
        result = self.linear(torch.cat(tensors, dim=-1))
        return cast(Hidden, result if packed is None else packed._replace(data=result))
