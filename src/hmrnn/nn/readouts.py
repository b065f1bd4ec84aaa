"""Read-outs of whole sequences: the states of the segments of a level, and one vector per sequence from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast

import torch
from msgspec import Meta
from torch import Tensor, nn

from hmrnn.config.checks import Count, Natural
from hmrnn.errors import InputError
from hmrnn.nn.attention import Attention
from hmrnn.nn.checks import Sizes, argument, check_lengths, readable
from hmrnn.nn.output import Lengths, Output

Pool = Literal["last", "mean", "max", "attention"]


class SegmentStates(NamedTuple):
    """The states of the segments of each sequence, padded to S, the largest number of segments.

    A memory for :class:`hmrnn.nn.Attention`: as long as the sequence has segments, such as words.
    """

    states: Tensor  # (S, B, D): h of all layers side by side; zero in the padding
    starts: Tensor  # (S, B): the first step of each segment; in the padding the last step of the sequence
    ends: Tensor  # (S, B): the last step of each segment; in the padding the last step of the sequence
    counts: Tensor  # (B,): the number of segments of each sequence

    @property
    def mask(self) -> Tensor:
        """(S, B): whether there is such a segment."""
        return torch.arange(len(self.ends), device=self.ends.device)[:, None] < self.counts


def segment_states(out: Output, level: int | None = 1, lengths: Lengths = None) -> SegmentStates:
    """The states of the segments of a level.

    A segment of level l ends where the detector of layer l fires, and at the end of the sequence. Its state is h of all
    layers at its last step; of a bidirectional network, h of the forward direction at its last step and of the reverse
    one at its first, where that has read the segment. Segments of a bidirectional network are those of its forward
    direction. The choice of steps passes no gradient to the detectors.

    Args:
        out: the output of a network for sequences with a batch dimension.
        level: 0: every step is a segment; from 1: a level of the hierarchy; None: the whole sequence is one.
        lengths: (B,) as given to the network; not needed if ``out.hidden`` is packed.

    Example::

        >>> out, _ = hmrnn.HMLSTM(10, (20, 30), 2)(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> words = hmrnn.nn.segment_states(out, 1, [50, 20, 30, 7])
        >>> words.states.shape[1:], words.mask.sum(0).equal(words.counts), words.ends.amax(0).tolist()
        (torch.Size([4, 50]), True, [49, 19, 29, 6])
    """
    out, lengths = out.time_first(lengths)
    hidden, boundaries = cast(tuple[Tensor, ...], out.hidden), out.boundaries
    both = boundaries.dim() == hidden[0].dim() + 1
    if hidden[0].dim() != 3:
        raise InputError(f"segments need a batch dimension; got hidden of shape {tuple(hidden[0].shape)}")
    T, B, levels = boundaries.shape[:3]
    argument("level", level, Annotated[int, Meta(ge=0, le=levels)] | None)
    z = boundaries[..., 0] if both else boundaries  # (T, B, L-1)
    ended = torch.zeros(T, B, dtype=torch.bool, device=z.device)
    if level is not None:
        ended = torch.ones_like(ended) if level == 0 else z[..., level - 1] > 0.5
    given = check_lengths(lengths, T, B, z.device)
    last = torch.full((B,), T - 1, device=z.device) if given is None else given - 1
    steps = torch.arange(T, device=z.device)[:, None]
    ended = (ended & (steps < last)) | (steps == last)
    counts = ended.sum(0)
    S = int(counts.max()) if readable(counts) else T  # in a CUDA graph the shape may not depend on values
    place = torch.where(ended, ended.cumsum(0) - 1, T)  # steps that end nothing go to a row that is dropped
    ends = last.expand(T + 1, B).scatter(0, place, steps.expand(T, B))[:S]
    starts = torch.minimum(torch.cat([torch.zeros_like(ends[:1]), ends[:-1] + 1]), last)
    parts: list[Tensor] = []
    for h in hidden:
        halves = zip(h.chunk(2, dim=-1), (ends, starts)) if both else [(h, ends)]
        parts += [half.gather(0, at[..., None].expand(-1, -1, half.shape[-1])) for half, at in halves]
    mask = torch.arange(len(ends), device=z.device)[:, None] < counts
    return SegmentStates(torch.cat(parts, dim=-1).masked_fill(~mask[..., None], 0), starts, ends, counts)


class SequenceReadOut(nn.Module):
    """One output per sequence: h of all layers, pooled over its steps or over the segments of a level; a linear map.

    Args:
        sizes: sizes of the layers, ``rnn.output_sizes``.
        output_size: size of the output, such as the number of classes.
        pool: "last" (the state at the end of the sequence; of the reverse direction, at its start), "mean", "max" (of
            each unit) or "attention" (a mean whose weights are learned).
        level: what is pooled: 0 for steps, l for the segments of level l, which :func:`segment_states` describes.
            Not for "last".
        bias: whether the linear map has a bias.

    Inputs: out, the network's output; lengths as given to the network (not needed if ``out.hidden`` is packed).

    Output: (B, output_size). :meth:`pooled` also says how much each segment contributed.

    Example::

        >>> rnn = hmrnn.HMLSTM(10, (20, 30), 2, bidirectional=True)
        >>> read_out = hmrnn.nn.SequenceReadOut(rnn.output_sizes, 5, pool="attention", level=1)
        >>> out, _ = rnn(torch.randn(50, 4, 10), lengths=[50, 20, 30, 7])
        >>> read_out(out, [50, 20, 30, 7]).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        output_size: int,
        *,
        pool: Pool = "last",
        level: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.sizes = argument("sizes", sizes, Sizes)
        self.pool = argument("pool", pool, Pool)
        self.level = argument("level", level, Natural)
        if pool == "last" and level > 0:
            raise InputError(f'pool "last" is the state at the end of the sequence, so level must be 0; got {level}')
        self.attention = Attention(sum(self.sizes)) if pool == "attention" else None
        size, bias = argument("output_size", output_size, Count), argument("bias", bias, bool)
        self.linear = nn.Linear(sum(self.sizes), size, bias=bias)

    def forward(self, out: Output, lengths: Lengths = None) -> Tensor:
        return self.linear(self.pooled(out, lengths)[0])

    def pooled(self, out: Output, lengths: Lengths = None) -> tuple[Tensor, Tensor, SegmentStates]:
        """The pooled vectors (B, D), the weight of each segment in them (B, S), and the segments.

        Weights sum to 1 and are 0 in the padding. "max": the share of the units whose largest value is there.
        """
        level = None if self.pool == "last" else self.level
        found = segment_states(out, level, lengths)
        states, mask = found.states, found.mask
        if states.shape[-1] != sum(self.sizes):
            sizes = [h.data.shape[-1] for h in out.hidden]
            raise InputError(f"the layers must have the sizes {self.sizes}, rnn.output_sizes; got {sizes}")
        if self.attention is not None:
            vector, weights = self.attention(states, mask)
            return vector, weights, found
        if self.pool == "max":
            vector, where = states.masked_fill(~mask[..., None], -torch.inf).max(dim=0)  # (B, D)
            shares = torch.zeros_like(states[..., 0].T).scatter_add_(1, where, torch.ones_like(vector))
            return vector, shares / vector.shape[-1], found
        weights = mask.to(states.dtype) / found.counts
        return (states * weights[..., None]).sum(0), weights.T, found
