"""Ends of words by a bigram model of words, sampled."""

import numpy as np
import pytest
import torch

from hmrnn.kinds.text.words import bigrams
from hmrnn.kinds.text.words.segmental import NONE
from hmrnn.ops.native import library

pytestmark = pytest.mark.skipif(library.why_not() is not None, reason="needs the native library")
WORDS = [tuple(map(ord, word)) for word in ("the", "dog", "cat", "sees", "barn", "under", "green", "a")]
SEPARATOR = 10


def drawn(lines=80, seed=1):
    """Lines of words, and whether a word ends after each symbol."""
    draw = np.random.default_rng(seed)
    words = [[WORDS[k] for k in draw.choice(len(WORDS), 7)] for _ in range(lines)]
    symbols = np.array([symbol for line in words for symbol in (*sum(line, ()), SEPARATOR)])
    gold = np.array([end for line in words for word in line for end in (*[0] * (len(word) - 1), 1)])
    return symbols, gold


def sampled(symbols, first, *, counted=None, given=(), known=(), rules=None):
    """The ends in the lines before the symbol ``counted`` and in the others; ``given`` has further lines, as ``first``
    has the cuts of both, column by column."""
    own = np.split(np.arange(len(symbols)), np.flatnonzero(symbols == SEPARATOR) + 1)[:-1]
    own = [line[:-1] for line in own if counted is None or line[0] < counted]
    texts = [torch.from_numpy(symbols[line]) for line in own] + [torch.tensor(line) for line in given]

    def columns(parts, value):
        return torch.nn.utils.rnn.pad_sequence([*parts, torch.zeros(120)], padding_value=value)[:, :-1].long()

    lengths = [len(text) for text in texts]
    cuts = torch.from_numpy(np.asarray(first)[: sum(lengths)]).split(lengths)
    return bigrams.sampled_ends(
        symbols,
        np.array([SEPARATOR]),
        np.zeros((128, 128), np.int8) if rules is None else rules,
        columns(map(torch.from_numpy, own), NONE),
        columns(texts, NONE),
        columns(cuts, 0).bool(),
        12,
        known,
    )


def right(ends, symbols, gold):
    return np.mean((ends[symbols != SEPARATOR] > 0.5) == gold)


def test_samples_mend_a_cut():
    symbols, gold = drawn()
    wrong = gold ^ (np.random.default_rng(2).random(len(gold)) < 0.05)
    ends = sampled(symbols, wrong)
    assert np.isnan(ends[symbols == SEPARATOR]).all()
    assert (ends[np.flatnonzero(symbols == SEPARATOR) - 1] == 1).all()
    assert right(ends, symbols, gold) > 0.97
    np.testing.assert_array_equal(sampled(symbols, wrong), ends)


def test_lines_that_are_not_counted_are_cut_as_the_others():
    symbols, gold = drawn()
    ends = sampled(symbols, gold, counted=1000)
    assert set(np.unique(ends[1100:][symbols[1100:] != SEPARATOR])) == {0, 1}
    assert right(ends, symbols, gold) > 0.97


def test_cuts_that_must_be_and_must_not():
    symbols, gold = drawn(lines=40)
    rules = np.zeros((128, 128), np.int8)
    rules[ord("o"), ord("g")], rules[ord("a"), :] = 1, -1
    rules[:, SEPARATOR] = 1
    ends = sampled(symbols, gold, rules=rules)
    follows = np.append(symbols[1:], SEPARATOR)
    assert (ends[(symbols == ord("o")) & (follows == ord("g"))] == 1).all()
    assert (ends[(symbols == ord("a")) & (follows != SEPARATOR)] < 0.1).all()


def test_what_is_known_is_believed():
    symbols, gold = drawn(lines=40)
    words = [tuple(map(ord, word)) for word in ("zyx", "vwuz")]
    symbols, first = np.append(symbols, [*sum(words, ()), SEPARATOR]), np.append(gold, [0] * 6 + [1])
    end = len(symbols) - 6
    assert sampled(symbols, first)[end] < 0.6
    assert sampled(symbols, first, known=words)[end] > 0.9
    lines, cuts = [words[0] + words[1] + words[1] + words[0]] * 30, [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1] * 30
    assert sampled(symbols, np.append(first, cuts), given=lines)[end] > 0.9
