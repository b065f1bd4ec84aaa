"""TreeReadOut: a tree-LSTM over the hierarchy of segments that an HM-LSTM found, one output per sequence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from hmrnn.config.checks import Count
from hmrnn.errors import InputError
from hmrnn.nn.checks import Sizes, argument, check_lengths
from hmrnn.nn.output import Lengths, Output


class TreeReadOut(nn.Module):
    r"""A child-sum tree-LSTM (Tai et al., 2015) over the segments of a sequence, and a linear map of its root.

    Leaves are the segments of level 1, with h of all layers at their last step as x. The parent of a segment is the
    segment of the next level in which it ends; the root is the whole sequence. An end of a level also ends the segments
    of all levels below it, as in ``Segmentation.tree(cut=True)``. For a leaf and for a node with children k:

    .. math::
        i, o, u = \sigma, \sigma, \tanh \text{ of the parts of } W x + b \quad\text{or}\quad U \sum_k h_k + b

        c = i u + \sum_k \sigma(F h_k + d) c_k \qquad h = o \tanh c

    Args:
        sizes: sizes of the layers, ``rnn.output_sizes`` of a network of one direction with detectors.
        size: size of h and c of a node.
        output_size: size of the output, such as the number of classes.

    Inputs: out, the network's output; lengths as given to the network (not needed if ``out.hidden`` is packed).

    Output: (B, output_size).

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30, 40))
        >>> out, _ = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> hmrnn.nn.TreeReadOut(rnn.output_sizes, 16, 5)(out, [50, 20, 30, 7]).shape
        torch.Size([4, 5])
    """

    def __init__(self, sizes: Sequence[int], size: int, output_size: int) -> None:
        super().__init__()
        self.sizes = argument("sizes", sizes, Sizes)
        self.size = argument("size", size, Count)
        self.leaf = nn.Linear(sum(self.sizes), 3 * self.size)  # W and b
        self.node = nn.Linear(self.size, 3 * self.size)  # U and b
        self.forget = nn.Linear(self.size, self.size)  # F and d
        self.linear = nn.Linear(self.size, argument("output_size", output_size, Count))

    def forward(self, out: Output, lengths: Lengths = None) -> Tensor:
        out, lengths = out.time_first(lengths)
        z = out.boundaries
        if z.dim() != 3 or z.shape[-1] == 0:
            raise InputError("a tree needs boundaries (T, B, L-1) of a network of one direction with detectors")
        hidden = cast(tuple[Tensor, ...], out.hidden)
        if tuple(h.shape[-1] for h in hidden) != self.sizes:
            raise InputError(f"the layers must have the sizes {self.sizes}, rnn.output_sizes")
        T, B, levels = z.shape
        given = check_lengths(lengths, T, B, z.device)
        last = torch.full((B,), T - 1, device=z.device) if given is None else given - 1
        steps = torch.arange(T, device=z.device)[:, None]
        # (levels, B * T): where segments end; those of a level are among those of the level below
        ends = [((z[..., l:] > 0.5).any(-1) & (steps < last)) | (steps == last) for l in range(levels)]
        rows = [ended.T.flatten() for ended in ends]
        h, c = self._gated(self.leaf(torch.cat(hidden, dim=-1).transpose(0, 1).flatten(0, 1)[rows[0]]))
        for below, above in itertools.pairwise(rows):
            parent = (above.cumsum(0) - above.long())[below]  # the number of ends of the level above before this one
            h, c = self._join(h, c, parent, int(above.sum()))
        sequence = torch.arange(B, device=z.device).repeat_interleave(T)[rows[-1]]
        h, _ = self._join(h, c, sequence, B)
        return self.linear(h)

    def _join(self, h: Tensor, c: Tensor, parent: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """h and c of ``count`` parents, from their children (N, size) and the parent (N,) of each."""
        kept = torch.sigmoid(self.forget(h)) * c
        total, memory = (h.new_zeros(count, self.size).index_add(0, parent, part.to(h.dtype)) for part in (h, kept))
        return self._gated(self.node(total), memory)

    @staticmethod
    def _gated(s: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        i, o, u = s.chunk(3, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(u)
        c = c if memory is None else c + memory
        return torch.sigmoid(o) * torch.tanh(c), c
