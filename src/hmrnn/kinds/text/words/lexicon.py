"""A lexicon of the segments of a text, learned from the text alone: a unigram model of words that are spelt at random.

A word is as probable as it is frequent elsewhere in the text; a new word is spelt by drawing its length and symbols,
each given the one before it in the word, as they follow each other in other new words. A word costs the square of its
content, its length times the entropy of a symbol; without it, frequent words that often follow each other become one.
Collapsed variational inference (CVB0) finds the expected counts. The count of a word that a place sees leaves out all
places with the same context, the CONTEXT symbols on both sides: so a run of symbols that occurs once, or as part of the
same phrase alone, does not count as a word. Counts are discounted, at first by so much that only frequent words count,
then less and less. Inference begins with cuts anywhere. If the words that it finds end at minima of the transitional
probability more often than by chance, it begins once more, with cuts there. Then the symbols on both sides of the ends
that were found teach where words end, and the words are counted again with that evidence, in turns. Compounds of more
frequent words are left out. The text is cut by the frequent words that are left, and from there a bigram model of words
is sampled (:mod:`hmrnn.kinds.text.words.bigrams`), whose words are the lexicon; without the native library, those of
that first cut.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hmrnn.errors import InputError
from hmrnn.kinds.text.words.bigrams import PIECE, sampled_ends
from hmrnn.kinds.text.words.segmental import (
    BROKEN,
    NONE,
    Sums,
    best_segmentation,
    by_ends,
    hashes,
    sum_segmentations,
    whole,
    windows,
)
from hmrnn.ops.native.library import why_not

SHORTEST, LONGEST = 4, 12
"""Limits of the length of the longest word."""
CONTEXT = 2
"""Symbols on each side of a word that are its context."""
_SYMBOLS = 400_000  # of a longer text, as many are read, in BLOCKS blocks
_BLOCKS = 20
_STRENGTH = 100.0  # of the prior, in words
_CONTENT = 20.0  # nats of a word's symbols that cost one nat; twice as many cost four
_SPELLING = 4.0  # counts per sign that smooth those of pairs: a large alphabet has too few pairs to learn from
_CUT, _UNCUT = 0.8, 0.1  # probability of an end at a minimum of the transitional probability, and elsewhere
_ANYWHERE = 0.25  # probability of an end after every symbol
_MORE = 1.4  # minima are used if words end there so many times as often as by chance
_DISCOUNTS = (32.0, 16.0, 8.0, 4.0, 2.0, 1.0)
_ITERATIONS = 3  # with each discount
_NEIGHBOURS = ((1, 1), (2, 1), (1, 2), (2, 2))  # symbols before and after an end, from few to many
_BACK_OFF = 4.0  # counts of the shorter context that smooth those of a longer one
_EVIDENCE, _TURNS = 2.0, 12  # weight of the neighbours' evidence, and updates with it
_RARE = 5.0  # words with a smaller expected count are left out
_NEW, _SIGN = 8.0, 0.6  # the cost of another word in nats, and that of its symbols as a share of their entropy
_LISTED = 0.9  # of new words, the share that are in a list of known words, if there is one
_TRUSTED = 3.0  # such a word is left out only if it is so many times as rare
_SURE = 1e-6  # probability that an end in a line that was segmented beforehand is none
_PART = 2  # least symbols of each part of a compound: endings are often single symbols
_BY_CHANCE = 400.0  # a compound is at most so many times as frequent as its parts are beside each other by chance


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
    ends: np.ndarray
    """(N,) float32: the probability that a word ends after each symbol of the text; NaN at separators."""

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


class Knowledge(NamedTuple):
    """What is known of the words of a text beforehand, as symbols."""

    words: Collection[tuple[int, ...]] = ()
    """A list that holds most words."""
    lines: Sequence[Sequence[tuple[int, ...]]] = ()
    """Lines that somebody has cut into words."""


NOTHING = Knowledge()


def learn_lexicon(
    symbols: np.ndarray, rules: np.ndarray, separators: np.ndarray, known: Knowledge = NOTHING
) -> Lexicon:
    """The lexicon of a text of symbols (N,); ``rules`` are those of a :class:`SegmentalHead`.

    ``separators`` are symbols that stand between sequences, such as line ends; none is part of a word.
    """
    symbols = np.append(symbols, NONE).astype(np.int64)
    places = _columns(symbols[:-1], separators)
    lattice = _Lattice(torch.from_numpy(symbols)[places], rules, known)
    minima = lattice.minima()
    sums = _learned(lattice, torch.full(minima.shape, _ANYWHERE, dtype=torch.float64))
    ends, at = sums.boundaries()[1:][lattice.within], minima[:-1][lattice.within].double()
    if (ends * at).sum() > _MORE * ends.sum() * at.mean():
        sums = _learned(lattice, torch.where(minima, _CUT, _UNCUT).double())
    for _ in range(_TURNS):
        sums = lattice.update(sums, _DISCOUNTS[-1], _EVIDENCE * lattice.by_ends(lattice.neighbours(sums)))
    first, longest = lattice.first_cut(_at(lattice.update(sums, _DISCOUNTS[-1]).segments, lattice.places))
    symbols = symbols[:-1]
    if why_not() is None:
        found = sampled_ends(symbols, separators, rules, places, lattice.text, first, longest, known.words)
        return _counted(symbols, found, known)
    found = np.full(len(symbols), np.nan, np.float32)
    own = places.mT >= 0
    found[places.mT[own].numpy()] = first.mT[: len(own)][own].numpy()
    return _counted(symbols, found, known)


def _counted(symbols: np.ndarray, ends: np.ndarray, known: Knowledge) -> Lexicon:
    """The lexicon of the words between ends that are more probable than not, and of the lines that were given."""
    stops = (np.flatnonzero(~(ends <= 0.5)) + 1).tolist()
    parts = itertools.pairwise([0, *stops])
    uses = collections.Counter(symbols[a:b].tobytes() for a, b in parts if not np.isnan(ends[b - 1]))
    uses.update(np.array(word, np.int64).tobytes() for line in known.lines for word in line)
    words = {tuple(np.frombuffer(key, np.int64).tolist()): n for key, n in uses.most_common()}
    of_length = np.bincount([*map(len, words)], [*words.values()])
    total = of_length.sum()
    longest = max(SHORTEST, int((of_length.cumsum() < 0.98 * total).sum()))
    mean = float(of_length @ np.arange(len(of_length)) / total)
    kept = {word: n for word, n in words.items() if n > 1 or word in known.words}
    return Lexicon([*kept], np.array([*kept.values()], np.float64), float(total), min(longest, LONGEST), mean, ends)


def _learned(lattice: _Lattice, end: Tensor) -> Sums:
    """The posterior of segments after inference that begins with probabilities (T, B) of an end after each symbol."""
    lattice.share_of_new = torch.ones(())
    sums = lattice.sums(lattice.by_ends(end))
    for discount in np.repeat(_DISCOUNTS, _ITERATIONS).tolist():
        sums = lattice.update(sums, discount)
    return sums


class _Lattice:
    """All segments of a text (T, B) of at most LONGEST symbols, and what is needed to count them.

    ``present`` (T, K, B) says which segments hold no NONE, and ``places`` where those are; attributes per segment are
    those of these alone.
    The kind of a segment is its symbols, and a use is a kind in a context. ``again`` are the segments whose kind has
    more than one use; only these are counted, since the others occur nowhere else.
    """

    def __init__(self, text: Tensor, rules: np.ndarray, known: Knowledge = NOTHING) -> None:
        columns = text.shape[1]
        text, cut = _with_lines(text, known.lines)
        self.text = text
        following = windows(text, LONGEST)  # (T, K + 1, B)
        inside = following[:, :-1]
        T, K, B = inside.shape
        self.present = (inside >= 0).cumprod(1).bool()
        self.places = self.present.flatten().nonzero()[:, 0]
        self.within = self.present[:-1, 1]  # (T - 1, B): a symbol, and one that follows
        table = torch.zeros((len(rules) + 1,) * 2, dtype=torch.int8)
        table[:-1, :-1] = torch.from_numpy(rules)
        rule = table[inside, following[:, 1:]]
        broken = (rule < 0) | ((rule > 0).cumsum(1) - (rule > 0).long() > 0)
        self.lengths = (self.places // B % K + 1).int()
        self.frequency = torch.bincount(text[text >= 0], minlength=len(rules)).double()
        self.frequency /= self.frequency.sum()
        self.entropy = float(torch.special.entr(self.frequency).sum())
        self.broken = BROKEN * _at(broken, self.places).double()
        self.broken -= torch.where(self.places % B < columns, 0.0, self.by_ends(cut))
        self.penalty = self.broken + (self.lengths * (self.entropy / _CONTENT)) ** 2
        self.pairs = _numbered(torch.where(self.within, text[:-1] * len(rules) + text[1:], NONE))
        self.share_of_new = torch.ones(())  # of each segment: the probability that it is a new word
        keys = _at(hashes(inside.movedim(1, 0).reshape(K, T * B)).reshape(K, T, B).movedim(0, 1), self.places)
        listed = {word for word in known.words if len(word) <= LONGEST}
        padded = pad_sequence([torch.tensor([NONE] * LONGEST), *map(torch.tensor, listed)], padding_value=NONE)
        self.listed = torch.isin(keys, whole(padded)).nonzero()[:, 0]
        self.share_listed = _LISTED / max(1, len(listed)) if len(self.listed) else 0.0
        self.unparted = listed.union(*known.lines)
        before, after = _contexts(text)
        self.first = (self.places // (K * B) * B + self.places % B).int()  # in text.flatten()
        self.last = self.first + (self.lengths - 1) * B
        contexts = torch.stack([keys, _at(before, self.first), _at(after, self.last + B)])
        kinds, uses = _numbered(keys), _numbered(hashes(contexts)[-1])
        kind_of = torch.zeros(int(uses.max()) + 1, dtype=torch.int64).scatter_(0, uses, kinds)
        self.again = torch.nonzero((torch.bincount(kind_of) > 1)[kinds])[:, 0].int()
        self.kinds, self.uses = (_numbered(_at(part, self.again)).int() for part in (kinds, uses))
        self.num_kinds, self.num_uses = (int(part.max()) + 1 if len(part) else 0 for part in (self.kinds, self.uses))

    def sums(self, values: Tensor) -> Sums:
        """The sums over all segmentations by scores of the present segments; a NONE is a segment of its own."""
        return sum_segmentations(self.scores(values - self.penalty))

    def scores(self, values: Tensor) -> Tensor:
        """(T, K, B): the scores of all segments by those of the present ones."""
        scores = torch.full(self.present.shape, -1e30, dtype=torch.float64)
        scores[:, 0] = 0.0
        scores.view(-1).index_copy_(0, self.places, values)
        return scores

    def minima(self) -> Tensor:
        """(T, B) bool: whether the transitional probability has a local minimum after each symbol."""
        text = self.text
        pairs = torch.stack([text[:-1], text[1:]]).flatten(1)
        within = (pairs >= 0).all(0)
        _, number, count = hashes(pairs)[-1].unique(return_inverse=True, return_counts=True)
        single = torch.bincount(text[text >= 0], minlength=1)
        p = torch.where(within, count[number] / single[pairs[0].clamp(min=0)].double(), 1.0).reshape(text[1:].shape)
        p = F.pad(p, (0, 0, 1, 2), value=1.0)  # p[t]: of symbol t after t - 1
        return (p[1:-1] < p[:-2]) & (p[1:-1] < p[2:])

    def by_ends(self, end: Tensor) -> Tensor:
        """Scores of the present segments by probabilities (T, B) of an end after each symbol."""
        return _at(by_ends(end, LONGEST).closed, self.places)

    @functools.cached_property
    def around(self) -> list[Tensor]:
        """For each of _NEIGHBOURS the number (T - 1, B) of what is around the end after each symbol."""
        margin = max(map(max, _NEIGHBOURS))
        (T, B), text = self.text.shape, F.pad(self.text, (0, 0, margin, margin), value=NONE)
        result = []
        for before, after in _NEIGHBOURS:
            around = torch.stack([text[margin + k : margin + k + T - 1] for k in range(1 - before, 1 + after)])
            keys = hashes(around.flatten(1))[-1].reshape(T - 1, B)
            result.append(_numbered(torch.where(self.within, keys, NONE)))
        return result

    def neighbours(self, sums: Sums) -> Tensor:
        """(T, B): the probability of an end after each symbol by those around it, as ``sums`` has it elsewhere."""
        here = self.within.double()
        ends = sums.boundaries()[1:] * here
        result = torch.full_like(ends, float(ends.sum() / here.sum().clamp(min=1)))
        for number in self.around:
            count, found = (
                _at(torch.bincount(number.flatten(), part.flatten()), number) - part for part in (here, ends)
            )
            result = (found.clamp(min=0) + _BACK_OFF * result) / (count + _BACK_OFF)
        result = torch.where(self.within, result, 1.0).clamp(1e-4, 1 - 1e-4)
        return F.pad(result, (0, 0, 0, 1), value=1 - 1e-4)

    def spelt(self, expected: Tensor) -> Tensor:
        """The log-probability of each segment as a new word of its length, where ``expected`` are the new words.

        Neither the place of a pair nor that of a first symbol counts for itself.
        """
        text, signs = self.text.clamp(min=0), len(self.frequency)
        starts, ends = (
            torch.zeros(text.numel(), dtype=torch.float64).index_add_(0, places, expected).reshape(text.shape)
            for places in (self.first, self.last)
        )
        joined = torch.where(self.within, (starts - ends).cumsum(0)[:-1].clamp(min=0), 0.0)  # pairs within a word
        pairs = _at(torch.bincount(self.pairs.flatten(), joined.flatten()), self.pairs)
        left = torch.bincount(text[:-1].flatten(), joined.flatten(), signs)[text[:-1]]
        begun = torch.bincount(text.flatten(), starts.flatten(), signs)[text]
        smooth = _SPELLING * signs
        follows = ((pairs - joined).clamp(min=0) + smooth * self.frequency[text[1:]]) / (left - joined + smooth)
        begins = ((begun - starts).clamp(min=0) + smooth * self.frequency[text]) / (starts.sum() - starts + smooth)
        so_far = F.pad(torch.where(self.within, follows.log(), 0.0).cumsum(0), (0, 0, 1, 0))
        return _at(begins.log() - so_far, self.first) + _at(so_far, self.last)

    def update(self, sums: Sums, discount: float, evidence: Tensor | float = 0.0) -> Sums:
        """The sums by the counts that ``sums`` expects; ``evidence`` is added to the scores of the present segments."""
        posterior = _at(sums.segments, self.places)
        of_length = torch.bincount(self.lengths - 1, posterior, LONGEST) + 1
        again = _at(posterior, self.again)
        used = torch.zeros(self.num_uses, dtype=torch.float64).index_add_(0, self.uses, again)
        counts = torch.zeros(self.num_kinds, dtype=torch.float64).index_add_(0, self.kinds, again)
        once = posterior.sum() - again.sum()
        new = _STRENGTH + once + (counts - discounted(counts, discount)).sum()
        spelt = self.spelt(posterior * self.share_of_new)
        as_new = spelt.add_(_at((of_length / of_length.sum()).log(), self.lengths - 1)).exp_()
        if self.share_listed:
            as_new.mul_(1 - _LISTED).index_add_(0, self.listed, as_new.new_full(self.listed.shape, self.share_listed))
        as_new.mul_(new)
        elsewhere = _at(counts, self.kinds).sub_(_at(used, self.uses)).clamp_(min=0)
        weights = as_new.index_add(0, self.again, discounted(elsewhere, discount))
        self.share_of_new = as_new.div_(weights)
        return self.sums(weights.div_(_STRENGTH + once + counts.sum()).log_().add_(evidence))

    def first_cut(self, posterior: Tensor) -> tuple[Tensor, int]:
        """(T, B) bool: whether a word ends after each symbol, by the words that are common in the posterior of each
        segment and are no compounds; and the length of the longest."""
        counts = torch.zeros(self.num_kinds, dtype=torch.float64).index_add_(0, self.kinds, posterior[self.again])
        example = torch.zeros(self.num_kinds, dtype=torch.int64).scatter_(0, self.kinds.long(), self.again.long())
        weight = torch.ones(len(self.lengths)).index_fill_(0, self.listed, _TRUSTED)
        common = torch.nonzero(counts * weight[example] > _RARE)[:, 0]
        common = common[counts[common].argsort(descending=True)]
        first, lengths = (part[example[common]].tolist() for part in (self.first, self.lengths))
        columns, B = self.text.T.numpy(), self.text.shape[1]
        words = [tuple(columns[at % B, at // B : at // B + k].tolist()) for at, k in zip(first, lengths)]
        of_length = torch.bincount(self.lengths - 1, posterior, LONGEST) / posterior.sum()
        longest = min(max(SHORTEST, int((of_length.cumsum(0) < 0.98).sum()) + 1), LONGEST)
        number = dict(zip(words, common.tolist()))
        kept = without_compounds(dict(zip(words, counts[common].tolist())), float(posterior.sum()), self.unparted)
        shares = torch.zeros_like(counts)
        shares[[number[word] for word in kept]] = torch.tensor([*kept.values()], dtype=torch.float64)
        new = (-_NEW - _SIGN * self.entropy * self.lengths).double().exp()
        known = new.index_add(0, self.again, _at(shares / posterior.sum(), self.kinds)).log()
        scores = self.scores(known - self.broken - BROKEN * (self.lengths > longest))
        result = torch.zeros(self.text.shape, dtype=torch.bool)
        for column, ends in enumerate(best_segmentation(scores)):
            result[torch.tensor(ends) - 1, column] = True
        return result, longest


def without_compounds(
    counts: dict[tuple[int, ...], float], total: float, unparted: Collection[tuple[int, ...]] = ()
) -> dict[tuple[int, ...], float]:
    """The counts of words, highest first, where those of compounds are given to their parts.

    A unigram model takes words that often follow each other for one word. A compound is two words of at least _PART
    symbols, each as frequent as itself or more; ``total`` is the number of all words. If it is much more frequent than
    by chance, it stays: then its parts are words by accident, or hardly occur apart. Those in ``unparted`` stay, too.
    """
    given, result = dict(counts), dict(counts)
    for word in sorted(counts, key=len, reverse=True):  # the parts of a compound may be compounds
        count = given[word]
        parts = [
            (given[left] * given[right], left, right)
            for left, right in ((word[:k], word[k:]) for k in range(_PART, len(word) - _PART + 1))
            if min(given.get(left, 0.0), given.get(right, 0.0)) >= count
        ]
        if parts and word not in unparted and count * total < _BY_CHANCE * max(parts)[0]:
            moved = result.pop(word)
            for part in max(parts)[1:]:
                result[part] += moved
    return dict(sorted(result.items(), key=lambda entry: -entry[1]))


def _at(values: Tensor, places: Tensor) -> Tensor:
    """The numbers of ``values`` at ``places`` of it, as one list, in the shape of ``places``: faster than brackets."""
    return values.flatten().index_select(0, places.flatten()).reshape(places.shape)


def _numbered(keys: Tensor) -> Tensor:
    """Numbers from 0 for equal keys."""
    return keys.unique(return_inverse=True)[1]


def _contexts(text: Tensor) -> tuple[Tensor, Tensor]:
    """Hashes (T + 1, B) of the CONTEXT symbols before and from each place on; nothing is seen beyond a NONE."""
    T, B = text.shape
    results = []
    for sequence in (text.flip(0), text):
        near = windows(F.pad(sequence, (0, 0, 0, 1), value=NONE), CONTEXT - 1)  # (T + 1, CONTEXT, B)
        near = torch.where((near >= 0).cumprod(1).bool(), near, NONE)
        results.append(hashes(near.movedim(1, 0).reshape(CONTEXT, -1))[-1].reshape(T + 1, B))
    return results[0].flip(0)[:-1], results[1]


def _with_lines(text: Tensor, lines: Sequence[Sequence[tuple[int, ...]]]) -> tuple[Tensor, Tensor]:
    """The text (T, B) and lines as further columns, and the probability of an end after each symbol of those."""
    if not lines:
        return text, torch.full(text.shape, 0.5, dtype=torch.float64)
    marked = [[2 * symbol + (k == len(word) - 1) for word in line for k, symbol in enumerate(word)] for line in lines]
    joined = np.concatenate([[*line, NONE] for line in marked])
    columns = torch.from_numpy(joined)[_columns(joined, np.array([NONE]))]
    T = max(len(text), len(columns))
    text, columns = (F.pad(part, (0, 0, 0, T - len(part)), value=NONE) for part in (text, columns))
    cut = torch.where(columns % 2 > 0, 1 - _SURE, _SURE).double()
    own = torch.where(columns < 0, NONE, columns // 2)
    return torch.cat([text, own], 1), torch.cat([torch.full(text.shape, 0.5).double(), cut], 1)


def _columns(symbols: np.ndarray, separators: np.ndarray) -> Tensor:
    """(T, B): the places of symbols, line by line in columns; NONE after each line and at the end of a column."""
    if len(symbols) > _SYMBOLS:
        size = _SYMBOLS // _BLOCKS
        starts = np.linspace(0, len(symbols) - size, _BLOCKS).astype(np.int64)
        blocks = [np.arange(start, start + size) for start in starts.tolist()]
    else:
        blocks = [np.arange(len(symbols))]
    apart = np.isin(symbols, separators)
    columns: list[list[int]] = [[]]
    for block in blocks:
        for line in np.split(block, np.flatnonzero(apart[block])):
            line = line[~apart[line]]
            for k in range(0, len(line), PIECE):
                piece = line[k : k + PIECE].tolist()
                if len(columns[-1]) + len(piece) > PIECE:
                    columns.append([])
                columns[-1] += [*piece, NONE]
    T = max(map(len, columns))
    if T == 0:
        raise InputError(
            "there is nothing to learn words from: the training part holds line ends alone; give more text"
        )
    return torch.tensor([column + [NONE] * (T - len(column)) for column in columns]).T.contiguous()
