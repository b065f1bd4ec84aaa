"""SegmentalHead: the probability of a text as the sum over all its segmentations into segments of at most K symbols.

    log α(t) = logsumexp over k ≤ K of  log α(t-k) + log p(the k symbols before t are a segment | context(t-k))

A segment is spelt by a small decoder, symbol by symbol, from the context before it; a lexicon of frequent segments may
be mixed in. A segment's score depends on its own symbols and the context alone, so all starts are computed at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.nn.dropout import factors
from hmrnn.ops.native import segmental as native

NONE = -1
"""Stands for a symbol before the start or after the end of a text."""
BROKEN = 20.0
"""Nats that a segmentation loses where it cuts between symbols that belong together, or does not cut where it must."""
_IMPOSSIBLE = -1e30
_FACTOR, _OFFSET = 6364136223846793005, 1442695040888963407


class Sums(NamedTuple):
    """The result of :func:`sum_segmentations`."""

    total: Tensor
    """(B,): log of the sum over all segmentations; its gradient reaches the scores."""
    segments: Tensor
    """(T, K, B): the posterior of each segment, by its start and its length - 1; no gradient."""

    def boundaries(self) -> Tensor:
        """(T, B): the posterior of a segment that starts before each symbol."""
        return self.segments.sum(1)


class _Sum(torch.autograd.Function):
    """Forward and backward sums in double precision; the gradient of the total is the posterior of each segment."""

    @staticmethod
    def forward(ctx, scores: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        if native.takes(scores):
            total, posterior = native.sums(scores, first)
            ctx.save_for_backward(posterior)
            ctx.mark_non_differentiable(posterior)
            return total.to(scores.dtype), posterior
        T, K, B = scores.shape
        s = scores.masked_fill(_beyond(T, K, scores.device)[..., None], _IMPOSSIBLE).double()
        # by_end[e, j] is the segment that ends before e + 1 and has K - j symbols; it starts at e + 1 - (K - j)
        padded = torch.cat([s.new_full((K - 1, K, B), _IMPOSSIBLE), s])
        by_end = torch.stack([padded[j : j + T, K - 1 - j] for j in range(K)], dim=1)  # (T, K, B)
        before = s.new_full((K + T + 1, B), _IMPOSSIBLE)  # log α, K places later
        before[K - 1 : K + T] = first
        for t in range(T):
            ways = torch.cat([before[t : t + K] + by_end[t], first[t + 1 : t + 2]])
            torch.logsumexp(ways, 0, out=before[K + t])
        after = s.new_full((T + K, B), _IMPOSSIBLE)  # log β
        after[T] = 0.0
        for t in range(T - 1, -1, -1):
            torch.logsumexp(after[t + 1 : t + 1 + K] + s[t], 0, out=after[t])
        alpha = before[K - 1 : K + T]  # (T + 1, B)
        total = alpha[T]
        ends = after.unfold(0, K, 1)[1 : T + 1].movedim(-1, 1)  # (T, K, B): log β at the end of each segment
        posterior = (alpha[:T, None] + s + ends - total).exp().to(scores.dtype)
        ctx.save_for_backward(posterior)
        ctx.mark_non_differentiable(posterior)
        return total.to(scores.dtype), posterior

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (posterior,) = ctx.saved_tensors
        return posterior * gradient, None


def sum_segmentations(scores: Tensor, first: Tensor | None = None) -> Sums:
    """The exact sum over all segmentations of T symbols.

    Args:
        scores: (T, K, B): the log-probability of the segment of k + 1 symbols that starts at t; segments that reach
            beyond T are not counted, whatever their scores.
        first: (T + 1, B): the log-weight of segmentations that begin at t; by default all begin at 0.
    """
    T, _, B = scores.shape
    if first is None:
        first = torch.full((T + 1, B), _IMPOSSIBLE, dtype=torch.float64, device=scores.device)
        first[0] = 0.0
    return Sums(*_Sum.apply(scores, first.double()))


def best_segmentation(scores: Tensor) -> list[list[int]]:
    """The most probable segmentation (Viterbi) by ``scores`` (T, K, B): the ends of each sequence, the last one T."""
    T, _, B = scores.shape
    length = (native.best if native.takes(scores) else _best)(scores.detach()).numpy()
    result = []
    for b in range(B):
        ends, t = [], T
        while t > 0:
            ends.append(t)
            t -= int(length[t, b])
        result.append(ends[::-1])
    return result


def _best(scores: Tensor) -> Tensor:
    """(T + 1, B): the length of the last segment of the best segmentation that ends at t."""
    T, K, B = scores.shape
    s = scores.masked_fill(_beyond(T, K, scores.device)[..., None], _IMPOSSIBLE).double().cpu().numpy()
    best = np.full((K + T + 1, B), _IMPOSSIBLE)  # K places later
    best[K] = 0.0
    length = np.zeros((T + 1, B), np.int64)
    lengths = np.arange(1, K + 1)
    for t in range(1, T + 1):
        starts = t - lengths
        ways = best[starts + K] + np.where(starts[:, None] >= 0, s[np.maximum(starts, 0), lengths - 1], _IMPOSSIBLE)
        length[t] = ways.argmax(0) + 1
        best[t + K] = ways.max(0)
    return torch.from_numpy(length)


def _beyond(T: int, K: int, device: torch.device) -> Tensor:
    """(T, K): whether the segment of k + 1 symbols from t reaches beyond T."""
    return torch.arange(T, device=device)[:, None] + torch.arange(1, K + 1, device=device) > T


def windows(symbols: Tensor, longest: int) -> Tensor:
    """(T, K + 1, B): each of the symbols (T, B) and the K that follow it; NONE after the end."""
    padded = F.pad(symbols, (0, 0, 0, longest), value=NONE)
    return padded.unfold(0, longest + 1, 1).movedim(-1, 1)


class Scores(NamedTuple):
    """Log-probabilities of segments (T, K, B), by their start and their length - 1."""

    closed: Tensor
    """Of the segment and of its end."""
    open: Tensor
    """Of the symbols so far, whether the segment ends after them or not; the lexicon is not mixed in."""


def by_ends(end: Tensor, longest: int) -> Scores:
    """The scores of segments if a segment ends after each symbol with the probability ``end`` (T, B)."""
    ends, goes_on = (
        F.pad(part, (0, 0, 0, longest - 1)).unfold(0, longest, 1).movedim(-1, 1)
        for part in (end.log(), (1 - end).log())
    )
    before = goes_on.cumsum(1) - goes_on
    return Scores(before + ends, before)


class SegmentalHead(nn.Module):
    """Scores of segments from the context before them.

    Args:
        num_symbols: size of the vocabulary.
        reader: units of the recurrent network that reads the text and gives the context (:meth:`read`).
        longest: K, the most symbols of a segment.
        size: units of the decoder.
        rules: (num_symbols, num_symbols) of 1 where two symbols must be cut apart, -1 where they must not, else 0.
        lexicon: most entries of the lexicon; 0: none. :meth:`set_lexicon` fills it.
        dropout: share of the context and of the decoder's units that are dropped in training.

    Example::

        >>> head = SegmentalHead(27, 64, longest=8, size=32)
        >>> symbols, context = torch.randint(27, (50, 4)), torch.randn(50, 4, 64)
        >>> scores = head(context, windows(symbols, 8))
        >>> sum_segmentations(scores.closed).total.shape, len(best_segmentation(scores.closed))
        (torch.Size([4]), 4)
    """

    def __init__(
        self,
        num_symbols: int,
        reader: int,
        *,
        longest: int,
        size: int,
        rules: np.ndarray | None = None,
        lexicon: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_symbols, self.longest, self.dropout = num_symbols, longest, dropout
        self.start = nn.Linear(reader, size)
        self.embedding = nn.Embedding(num_symbols + 1, size)  # the last one begins a segment
        self.reader = nn.LSTM(size, reader)
        self.decoder = nn.GRU(size, size)
        self.spell = nn.Linear(size, num_symbols)
        self.end = nn.Linear(size, 1)
        # an end is as unlikely as any symbol: if segments began short, the decoder would not learn to spell words
        nn.init.constant_(self.end.bias, -math.log(num_symbols))
        table = np.zeros((num_symbols + 1, num_symbols + 1), np.int8)  # the last row and column are for NONE
        if rules is not None:
            table[:-1, :-1] = rules
        self.register_buffer("rules", torch.from_numpy(table), persistent=False)
        self.gate = nn.Linear(size, 1) if lexicon else None
        self.register_buffer("words", torch.full((lexicon, longest), float(NONE)) if lexicon else None)
        self.register_buffer("shares", torch.full((lexicon,), _IMPOSSIBLE) if lexicon else None)

    def forward(self, context: Tensor, following: Tensor) -> Scores:
        """Scores (T, K, B) of all segments.

        Args:
            context: (T, B, reader): what was read before each symbol.
            following: (T, K + 1, B): the symbols from each step on, from :func:`windows`.
        """
        T, B, _ = context.shape
        K = self.longest
        inside = following[:, :-1].movedim(1, 0).reshape(K, T * B)  # (K, N)
        hidden = torch.tanh(self.start(F.dropout(context, self.dropout, self.training))).reshape(T * B, -1)
        spelt, stop = self._spell(hidden, inside, B)  # (K, N)
        ends, goes_on = F.logsigmoid(stop[1:]), F.logsigmoid(-stop[1:])  # after 1 .. K-1 symbols
        nothing = torch.zeros_like(spelt[:1])
        prefix = spelt.cumsum(0) + torch.cat([nothing, goes_on]).cumsum(0)
        closed = prefix + torch.cat([ends, nothing])  # after K symbols it ends in any case
        if self.gate is not None:
            share = wide(self.gate(hidden)).squeeze(-1)
            closed = torch.logaddexp(closed + F.logsigmoid(-share), self.known(inside) + F.logsigmoid(share))
        broken = self._broken(following).movedim(1, 0).reshape(K, T * B)
        return Scores(*((part - broken).reshape(K, T, B).movedim(0, 1) for part in (closed, prefix)))

    def _spell(self, hidden: Tensor, inside: Tensor, B: int) -> tuple[Tensor, Tensor]:
        """The log-probability of each symbol (K, N) of the segments that start with ``hidden``, and the score of an end
        before it; 0 where there is none.

        In training units of the symbols that are read are dropped, the same ones in a sequence, so that each symbol is
        multiplied once for a sequence and not for every start; and units of the output, the same ones in a segment.
        """
        K, N = inside.shape
        signs, drop = self.num_symbols + 1, self.training and self.dropout > 0
        first = inside.new_full((1, N), self.num_symbols)
        read = torch.cat([first, inside[:-1]]).clamp(min=0)
        embedding, mask = self.embedding.weight, None
        if drop:
            read = read + torch.arange(N, device=read.device) % B * signs
            kinds = read.new_zeros(B * signs)
            kinds[read] = 1
            which, read = kinds.nonzero()[:, 0], (kinds.cumsum(0) - 1)[read]
            kept = factors(embedding.new_empty(B, embedding.shape[1]), self.dropout)
            embedding = embedding[which % signs] * kept[which // signs]
            mask = factors(hidden, self.dropout)
        if native.takes(hidden):
            W, U, of_input, b = self.decoder.parameters()
            weight, offset = (torch.cat([a, b]) for a, b in zip(self.spell.parameters(), self.end.parameters()))
            return native.spell(hidden, F.linear(embedding, W, of_input), U, b, weight, offset, mask, read, inside)
        out = self.decoder(embedding[read], hidden[None].contiguous())[0]
        out = out if mask is None else out * mask  # (K, N, size)
        spelt = -F.cross_entropy(wide(self.spell(out)).flatten(0, 1), inside.clamp(min=0).flatten(), reduction="none")
        there = (inside >= 0).cumprod(0).bool()
        before = torch.cat([torch.ones_like(there[:1]), there[:-1]])
        return spelt.reshape(K, N) * there, wide(self.end(out)).squeeze(-1) * before

    def score(self, symbols: Tensor, following: Tensor) -> Scores:
        """Scores (T, K, B) of the segments that begin after each step.

        Args:
            symbols: (T, B): the symbol that is read at each step.
            following: (T, K + 1, B): the symbols after each step, from :func:`windows`.
        """
        found: Scores = self(self.read(symbols), following)
        return found

    def draw(self, context: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Segments (N, K) that are spelt after contexts (N, reader), and the probability of spelling there.

        A segment ends before a NONE. The generator is one of the CPU.
        """
        hidden = torch.tanh(self.start(context))
        share = hidden.new_zeros(len(hidden)) if self.gate is None else self.gate(hidden).sigmoid().squeeze(-1)
        symbol = torch.full((len(hidden),), self.num_symbols, device=hidden.device)
        on, state, spelt = torch.ones_like(symbol, dtype=torch.bool), hidden[None].contiguous(), []
        for k in range(self.longest):
            out, state = self.decoder(self.embedding(symbol)[None], state)
            if k > 0:
                on &= torch.rand(len(on), generator=generator).to(on.device) >= self.end(out[0]).sigmoid().squeeze(-1)
            symbol = torch.multinomial(self.spell(out[0]).softmax(-1).cpu(), 1, generator=generator)[:, 0].to(on.device)
            spelt.append(torch.where(on, symbol, NONE))
        return torch.stack(spelt, 1), 1 - share

    def read(self, symbols: Tensor) -> Tensor:
        """(T, B, reader): the context after each of the symbols (T, B), from those since the first."""
        x = F.dropout(self.embedding(symbols), self.dropout, self.training)
        return cast(Tensor, self.reader(x)[0])

    def _broken(self, following: Tensor) -> Tensor:
        """(T, K, B): what a segment loses by cuts inside it that must be, and by its end where no cut may be."""
        rule = self.rules[following[:, :-1], following[:, 1:]]  # type: ignore[index]  # (T, K, B): at the end of k + 1 symbols
        missing = (rule > 0).cumsum(1) - (rule > 0).long()
        return BROKEN * (missing + (rule < 0)).float()

    def set_lexicon(self, words: list[tuple[int, ...]], shares: np.ndarray) -> None:
        """Fill the lexicon with words, as symbols, and the share of each among all segments (they add up to 1)."""
        assert isinstance(self.words, Tensor)
        assert isinstance(self.shares, Tensor)
        self.words.fill_(float(NONE))
        self.shares.fill_(_IMPOSSIBLE)
        for k, word in enumerate(words):
            self.words[k, : len(word)] = torch.tensor(word, dtype=self.words.dtype)
        self.shares[: len(words)] = torch.from_numpy(np.log(shares)).to(self.shares)

    def known(self, inside: Tensor) -> Tensor:
        """(K, N): the log of the lexicon's share of the first k + 1 of the symbols (K, N); very low if it has none."""
        keys, order = whole(cast(Tensor, self.words).long().T).sort()
        asked = hashes(inside)
        place = torch.searchsorted(keys, asked).clamp(max=len(keys) - 1)
        found = (keys[place] == asked) & (inside >= 0).cumprod(0).bool()
        return torch.where(found, cast(Tensor, self.shares)[order[place]].float(), _IMPOSSIBLE)


def wide(x: Tensor) -> Tensor:
    """x in at least single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def hashes(symbols: Tensor) -> Tensor:
    """(K, N) int64: a hash of the first k + 1 of the symbols (K, N)."""
    result, h = [], torch.zeros_like(symbols[0])
    for row in symbols:
        h = h * _FACTOR + (row + 2) * _OFFSET  # wraps around
        h = h ^ (h >> 29)
        result.append(h)
    return torch.stack(result)


def whole(words: Tensor) -> Tensor:
    """(N,): a hash of each of the words (K, N), which end before a NONE; a large number where none begins."""
    lengths = (words >= 0).sum(0)
    keys = hashes(words).gather(0, (lengths - 1).clamp(min=0)[None])[0]
    return torch.where(lengths > 0, keys, torch.iinfo(torch.int64).max)
