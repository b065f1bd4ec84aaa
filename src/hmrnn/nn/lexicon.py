"""A lexicon of the segments of a text, learned from the text alone: a unigram model of words that are spelt at random.

A word is as probable as it is frequent elsewhere in the text; a new word is spelt by drawing its length and symbols.
Collapsed variational inference (CVB0) finds the expected counts: the count of a word that a place sees leaves out the
place itself, so that a long run of symbols that occurs once does not count as a word. Counts are discounted, at first
by so much that only frequent words count, which cut the runs of words that occur a few times; then less and less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn.segmental import BROKEN, NONE, hashes, sum_segmentations, windows

SHORTEST, LONGEST = 4, 12
"""Limits of the length of the longest word."""
PIECE = 200
"""Lines are cut into pieces of at most so many symbols."""
_SYMBOLS = 400_000  # of a longer text, as many are read, in BLOCKS blocks
_BLOCKS = 20
_STRENGTH = 100.0  # of the prior, in words
_STARTING_RATE = 0.25
_DISCOUNTS = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0)
_ITERATIONS = (10, 3, 3, 3, 3, 3)  # with each discount
_RARE = 1.5  # words with a smaller expected count are left out


class Lexicon(NamedTuple):
    """Words by falling expected count."""

    words: list[tuple[int, ...]]
    counts: np.ndarray
    """(words,): how often each is expected in the text that was read."""
    total: float
    """Expected number of segments, rare ones included."""
    longest: int
    """Length that 98 % of the segments do not exceed, but at least SHORTEST."""
    mean: float
    """Mean length of a segment."""

    def shares(self, most: int, longest: int) -> tuple[list[tuple[int, ...]], np.ndarray]:
        """At most ``most`` words of at most ``longest`` symbols, and the share of each among them.

        Counts are lowered, as a word is expected to be rarer in other texts than in the one that it was found in.
        """
        chosen = [k for k, word in enumerate(self.words) if len(word) <= longest][:most]
        counts = discounted(torch.from_numpy(self.counts[chosen]), _DISCOUNTS[-1]).numpy()
        return [self.words[k] for k in chosen], counts / counts.sum()


def discounted(counts: Tensor, most: float) -> Tensor:
    """Counts less most · (1 - exp(-count / most)): of a small count c, c² / (2 · most) is left."""
    return (counts + most * (-counts / most).expm1()).clamp(min=0)


def learn_lexicon(symbols: np.ndarray, rules: np.ndarray, separators: np.ndarray) -> Lexicon:
    """The lexicon of a text of symbols (N,); ``rules`` are those of a :class:`~hmrnn.nn.segmental.SegmentalHead`.

    ``separators`` are symbols that stand between sequences, such as line ends; none is part of a word.
    """
    text = _pieces(np.asarray(symbols, np.int64), separators)  # (T, B)
    following = windows(text, LONGEST)  # (T, K + 1, B)
    inside = following[:, :-1]
    T, K, B = inside.shape
    present = (inside >= 0).cumprod(1).bool()
    table = torch.zeros((len(rules) + 1,) * 2, dtype=torch.int8)
    table[:-1, :-1] = torch.from_numpy(rules)
    rule = table[inside, following[:, 1:]]
    broken = (rule < 0) | ((rule > 0).cumsum(1) - (rule > 0).long() > 0)
    keys = hashes(inside.movedim(1, 0).reshape(K, T * B)).reshape(K, T, B).movedim(0, 1)[present]
    _, numbers = keys.unique(return_inverse=True)
    kinds = int(numbers.max()) + 1
    example = torch.zeros(kinds, dtype=torch.int64).scatter_(0, numbers, torch.arange(len(numbers)))
    lengths = torch.arange(1, K + 1)[None, :, None].expand(T, K, B)[present]
    known = text[text >= 0]
    spelling = torch.bincount(known, minlength=len(rules)).double().div(len(known)).log()
    spelt = torch.where(inside >= 0, spelling[inside.clamp(min=0)], 0.0).cumsum(1)[present]
    scores = torch.full((T, K, B), -torch.inf, dtype=torch.float64)
    scores[:, 0] = 0.0  # padding is cut into single symbols
    rate = torch.arange(K, dtype=torch.float64) * np.log(1 - _STARTING_RATE)
    of_length = (rate - rate.logsumexp(0)).exp()
    penalty = BROKEN * broken[present].double()
    scores[present] = of_length.log()[lengths - 1] - penalty
    for discount in np.repeat(_DISCOUNTS, _ITERATIONS).tolist():
        posterior = sum_segmentations(scores.clamp(min=-1e30)).segments[present]
        counts = torch.zeros(kinds, dtype=torch.float64).index_add_(0, numbers, posterior)
        of_length = torch.bincount(lengths - 1, posterior, K) + 1
        of_length = of_length / of_length.sum()
        elsewhere = (counts[numbers] - posterior).clamp(min=0)
        new = _STRENGTH + (counts - discounted(counts, discount)).sum()
        weights = discounted(elsewhere, discount) + new * (spelt + of_length.log()[lengths - 1]).exp()
        scores[present] = (weights / (counts.sum() + _STRENGTH)).log() - penalty
    common = torch.nonzero(counts > _RARE)[:, 0]
    common = common[counts[common].argsort(descending=True)]
    places = torch.nonzero(present)[example[common]]  # (words, 3): start, length - 1, column
    columns = text.T.numpy()
    words = [tuple(columns[b, t : t + k + 1].tolist()) for t, k, b in places.tolist()]
    longest = max(SHORTEST, int((of_length.cumsum(0) < 0.98).sum()) + 1)
    mean = float((torch.arange(1, K + 1) * of_length).sum())
    return Lexicon(words, counts[common].numpy(), float(counts.sum()), longest, mean)


def _pieces(symbols: np.ndarray, separators: np.ndarray) -> Tensor:
    """(T, B): the text cut at separators and into pieces; NONE after the end of a piece."""
    if len(symbols) > _SYMBOLS:
        size = _SYMBOLS // _BLOCKS
        starts = np.linspace(0, len(symbols) - size, _BLOCKS).astype(np.int64)
        blocks = [symbols[start : start + size] for start in starts.tolist()]
    else:
        blocks = [symbols]
    pieces = []
    for block in blocks:
        for line in np.split(block, np.flatnonzero(np.isin(block, separators))):
            line = line[~np.isin(line, separators)]
            pieces += [line[k : k + PIECE] for k in range(0, len(line), PIECE)]
    if not pieces:
        raise InputError(
            "there is nothing to learn words from: the training part holds line ends alone; give more text"
        )
    T = max(map(len, pieces))
    text = np.full((T, len(pieces)), NONE)
    for b, piece in enumerate(pieces):
        text[: len(piece), b] = piece
    return torch.from_numpy(text)
