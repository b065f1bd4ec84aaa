"""LinearChainCRF: the distribution of a sequence of tags, with scores of tags and of pairs of neighbours."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hmrnn.ops.interface import within

Over = Callable[..., Tensor]


class LinearChainCRF(nn.Module):
    r"""A linear-chain conditional random field over K tags (Lafferty, McCallum and Pereira, 2001).

    .. math::
        \log p(y \mid e) = s_{y_1} + \sum_n e_{n, y_n} + \sum_n A_{y_{n-1}, y_n} + t_{y_N} - \log Z(e)

    with emissions e from a network, transitions A, and scores s and t of the first and the last tag. Every method takes
    emissions (N, B, K) and counted (B,), the number of steps of each sequence, at least 1; the rest is padding.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(size, size))  # from the row's tag to the column's
        self.first = nn.Parameter(torch.zeros(size))
        self.last = nn.Parameter(torch.zeros(size))

    def score(self, emissions: Tensor, tags: Tensor, counted: Tensor) -> Tensor:
        """(B,): the score of tags (N, B), before normalisation."""
        active = within(counted, len(emissions))  # (N, B)
        own = emissions.gather(2, tags[..., None])[..., 0]  # (N, B)
        steps = self.transitions[tags[:-1], tags[1:]]  # (N-1, B)
        end = tags.gather(0, counted[None] - 1)[0]
        return (
            torch.where(active, own, 0.0).sum(0)
            + torch.where(active[1:], steps, 0.0).sum(0)
            + self.first[tags[0]]
            + self.last[end]
        )

    def log_partition(self, emissions: Tensor, counted: Tensor, over: Over = torch.logsumexp) -> Tensor:
        """(B,): log Z, by the forward algorithm; with the maximum ``over`` tags, the score of the likeliest ones."""
        alpha = self.first + emissions[0]  # (B, K)
        for n in range(1, len(emissions)):
            moved = over(alpha[:, :, None] + self.transitions, dim=1) + emissions[n]
            alpha = torch.where((n < counted)[:, None], moved, alpha)
        return over(alpha + self.last, dim=1)

    def nats(self, emissions: Tensor, tags: Tensor, counted: Tensor) -> Tensor:
        """(B,): -log p of tags (N, B)."""
        return self.log_partition(emissions, counted) - self.score(emissions, tags, counted)

    def decode(self, emissions: Tensor, counted: Tensor) -> Tensor:
        """(N, B): the likeliest tags; zeros in the padding.

        They are where the gradient of their score is 1, which takes the path of the Viterbi algorithm.
        """
        return self.marginals(emissions, counted, lambda a, dim: a.max(dim).values).argmax(-1)

    def marginals(self, emissions: Tensor, counted: Tensor, over: Over = torch.logsumexp) -> Tensor:
        """(N, B, K): the probability of every tag at every step, the gradient of log Z; zeros in the padding."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf = emissions.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_partition(leaf, counted, over).sum(), leaf)
        return gradient
