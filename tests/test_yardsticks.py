"""The simple models, against a slow and literal writing of their formula."""

from __future__ import annotations

import lzma
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from refusals import refused

yardsticks = tiny.script(tiny.ROOT / "examples" / "yardsticks.py")


def witten_bell(train: list[int], symbol: int, context: tuple[int, ...], num_symbols: int) -> float:
    """P(symbol | context): counts with the whole context, and the rest of the mass to the context without its start."""
    n = len(context) + 1
    after = Counter(train[k + n - 1] for k in range(len(train) - n + 1) if tuple(train[k : k + n - 1]) == context)
    lower = 1 / num_symbols if n == 1 else witten_bell(train, symbol, context[1:], num_symbols)
    if not after:
        return lower
    return (after[symbol] + len(after) * lower) / (sum(after.values()) + len(after))


def literal(train: list[int], test: list[int], num_symbols: int, order: int) -> float:
    total = 0.0
    for t in range(1, len(test)):
        context = tuple(test[max(0, t - order + 1) : t])
        total -= math.log2(witten_bell(train, test[t], context, num_symbols))
    return total / (len(test) - 1)


@given(
    train=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    test=st.lists(st.integers(0, 4), min_size=2, max_size=25),
    order=st.integers(1, 5),
)
def test_ngram_is_the_formula(train: list[int], test: list[int], order: int) -> None:
    ours = yardsticks.ngram(np.array(train, np.uint8), np.array(test, np.uint8), 5, order)
    assert ours == pytest.approx(literal(train, test, 5, order), rel=1e-12)


def test_ngram_is_a_distribution() -> None:
    """The probabilities of all symbols after a context add up to one."""
    train = np.random.default_rng(0).integers(0, 4, 300)
    for context in ([0, 1, 2, 3], [3, 3, 3, 3], [4, 4, 4, 4]):  # seen, rare, never seen
        bits = [yardsticks.ngram(train, np.array([*context, s]), 5) for s in range(5)]
        before = yardsticks.ngram(train, np.array(context), 5) * 3  # bits of the symbols before the last
        assert sum(2 ** -(4 * b - before) for b in bits) == pytest.approx(1.0)


def test_unigram() -> None:
    train, test = np.array([0, 0, 0, 1]), np.array([1, 0, 1])
    expected = -(math.log2((3 + 2 / 3) / 6) + math.log2((1 + 2 / 3) / 6)) / 2  # of 3 symbols, 2 kinds were seen
    assert yardsticks.unigram(train, test, 3) == pytest.approx(expected)


def test_a_text_that_repeats_is_cheap() -> None:
    text = np.tile(np.arange(6), 200)
    assert yardsticks.ngram(text, text[:60], 6) < 0.1
    assert yardsticks.unigram(text, text[:60], 6) == pytest.approx(math.log2(6), abs=1e-6)


def test_numbers_stay_inside_64_bits() -> None:
    with refused():
        yardsticks.ngram(np.array([0, 1]), np.array([0, 1]), 10_000)


def test_xz() -> None:
    random = np.random.default_rng(1)
    train = random.integers(0, 256, 5000, np.uint8).tobytes()
    new = random.integers(0, 256, 5000, np.uint8).tobytes()
    assert yardsticks.xz(train, new) == pytest.approx(8, rel=0.02)
    assert yardsticks.xz(train, train) < 0.2
    alone = 8 * len(lzma.compress(b"abcd" * 500, preset=9)) / 2000
    assert 0 <= yardsticks.xz(b"", b"abcd" * 500) < alone
