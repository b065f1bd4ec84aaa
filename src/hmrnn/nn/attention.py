"""Attention: a weighted mean of a memory, such as the steps of a sequence or the segments of a level."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hmrnn.config.checks import Count, Natural
from hmrnn.errors import InputError
from hmrnn.nn.checks import argument
from hmrnn.nn.recurrent import check_tensor


class Attention(nn.Module):
    r"""Additive attention (Bahdanau et al., 2015) over a memory of S vectors.

    .. math::
        e_s = v \cdot \tanh(W m_s + Q q + b) \qquad \alpha = \operatorname{softmax}(e) \qquad c = \sum_s \alpha_s m_s

    Args:
        memory_size: size of the vectors m.
        query_size: size of the query q; 0: there is none, and the memory alone decides.
        size: size of v; by default that of the memory.

    Inputs: memory (S, B, memory_size), mask (S, B) of the vectors that count (None: all), and query (B, query_size), or
    (N, B, query_size) for N queries at once. A memory is :func:`hmrnn.nn.segment_states`'s ``states`` and ``mask``.

    Outputs: the context c, (B, memory_size), and the weights α, (B, S), which are 0 where the mask is False; with N
    queries (N, B, memory_size) and (N, B, S).

    Example::

        >>> attention = hmrnn.nn.Attention(memory_size=40, query_size=16)
        >>> context, weights = attention(torch.randn(9, 4, 40), query=torch.randn(4, 16))
        >>> tuple(context.shape), tuple(weights.shape)
        ((4, 40), (4, 9))
    """

    def __init__(self, memory_size: int, query_size: int = 0, size: int | None = None) -> None:
        super().__init__()
        self.memory_size = argument("memory_size", memory_size, Count)
        self.query_size = argument("query_size", query_size, Natural)
        size = self.memory_size if size is None else argument("size", size, Count)
        self.keys = nn.Linear(self.memory_size, size)  # W and b
        self.query = nn.Linear(self.query_size, size, bias=False) if self.query_size > 0 else None  # Q
        self.v = nn.Linear(size, 1, bias=False)

    def forward(self, memory: Tensor, mask: Tensor | None = None, query: Tensor | None = None) -> tuple[Tensor, Tensor]:
        check_tensor("memory", memory, ("S", "B", self.memory_size))
        if mask is not None:
            check_tensor("mask", mask, memory.shape[:2])
        return self.attend(*self.prepare(memory, mask), mask, query)

    def prepare(self, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The memory, zero where the mask is False, and W m + b: what calls of :meth:`attend` have in common."""
        if mask is not None:  # NaN in the padding would reach the gradient
            memory = memory.masked_fill(~mask[..., None], 0)
        return memory, self.keys(memory)  # (S, B, memory_size), (S, B, size)

    def attend(
        self, memory: Tensor, keys: Tensor, mask: Tensor | None, query: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Context and weights for a query, given what :meth:`prepare` returned."""
        if self.query is None:
            if query is not None:
                raise InputError("query_size is 0, so this attention takes no query")
        else:
            several = ["N"] if isinstance(query, Tensor) and query.dim() == 3 else []
            check_tensor("query", query, (*several, memory.shape[1], self.query_size))
            keys = keys + self.query(query).unsqueeze(-3)  # (N, S, B, size), or without N
        scores = self.v(torch.tanh(keys)).squeeze(-1)  # (N, S, B)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-2)
        return torch.einsum("...sb,sbd->...bd", weights, memory), weights.transpose(-1, -2)
