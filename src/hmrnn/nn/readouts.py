"""Read-outs: what is made of h of all layers, at every step, of every segment of a level, or of whole sequences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from hmrnn.config.checks import Count, Natural
from hmrnn.errors import InputError
from hmrnn.nn.attention import Attention
from hmrnn.nn.bidirectional import States, side_by_side
from hmrnn.nn.checks import Sizes, argument
from hmrnn.nn.output import Lengths, Output, at_steps, marked
from hmrnn.nn.recurrent import check_lengths
from hmrnn.ops import State
from hmrnn.ops.interface import within

Hidden: TypeAlias = Tensor | PackedSequence
Pool = Literal["last", "mean", "max", "attention"]


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
        check_layers(hidden, self.hidden_sizes)
        joined = side_by_side(hidden)
        packed = isinstance(joined, PackedSequence)
        return joined._replace(data=self.linear(joined.data)) if packed else self.linear(joined)


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
        return within(self.counts, len(self.ends))


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
    hidden, z = cast(tuple[Tensor, ...], out.hidden), out.boundaries
    if hidden[0].dim() != 3:
        raise InputError(f"segments need a batch dimension; got hidden of shape {tuple(hidden[0].shape)}")
    both = z.dim() == 4
    z = z[..., 0] if both else z  # (T, B, L-1)
    T, B, levels = z.shape
    argument("level", level, Annotated[int, Meta(ge=0, le=levels)] | None)
    fires = torch.full((T, B), level == 0, device=z.device) if not level else z[..., level - 1] > 0.5
    ended, last = segment_ends(fires, lengths)
    ends, counts = marked(ended)
    mask = within(counts, len(ends))
    ends = ends.where(mask, last)
    starts = torch.minimum(torch.cat([torch.zeros_like(ends[:1]), ends[:-1] + 1]), last)
    halves = [zip(h.chunk(2, dim=-1), (ends, starts)) if both else [(h, ends)] for h in hidden]
    states = torch.cat([at_steps(half, at) for pairs in halves for half, at in pairs], dim=-1)
    return SegmentStates(states.masked_fill(~mask[..., None], 0), starts, ends, counts)


def segment_ends(fires: Tensor, lengths: Lengths) -> tuple[Tensor, Tensor]:
    """(T, B): where segments end, which is where a detector fires and at the end; (B,): the last steps."""
    T, B = fires.shape
    given = check_lengths(lengths, T, B, fires.device)
    last = torch.full((B,), T - 1, device=fires.device) if given is None else given - 1
    steps = torch.arange(T, device=fires.device)[:, None]
    return (fires & (steps < last)) | (steps == last), last


def check_layers(hidden: Sequence[Any], sizes: tuple[int, ...]) -> None:
    """Check that there is h of each layer, of these sizes."""
    got = tuple((h.data if isinstance(h, PackedSequence) else h).shape[-1] for h in hidden)
    if got != sizes:
        raise InputError(f"the layers must have the sizes {sizes}, rnn.output_sizes; got {got}")


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
        check_layers(out.hidden, self.sizes)
        found = segment_states(out, level, lengths)
        states, mask = found.states, found.mask
        if self.attention is not None:
            vector, weights = self.attention(states, mask)
            return vector, weights, found
        if self.pool == "max":
            vector, where = states.masked_fill(~mask[..., None], -torch.inf).max(dim=0)  # (B, D)
            shares = torch.zeros_like(states[..., 0].T).scatter_add_(1, where, torch.ones_like(vector))
            return vector, shares / vector.shape[-1], found
        weights = mask.to(states.dtype) / found.counts
        return (states * weights[..., None]).sum(0), weights.T, found


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
        check_layers(hidden, self.sizes)
        T, B, levels = z.shape
        # (levels, B * T): where segments end; those of a level are among those of the level below
        rows = [segment_ends((z[..., l:] > 0.5).any(-1), lengths)[0].T.flatten() for l in range(levels)]
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
