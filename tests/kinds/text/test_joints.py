"""Where the kind of two symbols decides about a cut between them."""

import numpy as np
import pytest

from hmrnn.kinds.text.words import joints
from hmrnn.kinds.text.words.joints import rules, separators
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused


def rule(before, after):
    vocabulary = Vocabulary("characters", tuple(sorted({before, after, "\n"})))
    first, second = (vocabulary.symbols.index(symbol) for symbol in (before, after))
    return int(rules(vocabulary)[first, second])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a", "b", 0),
        ("1", "2", -1),
        ("a", "1", 0),
        ("e", "\u0301", -1),  # an accent of its own
        ("\u0915", "\u093f", -1),  # a vowel sign of Devanagari
        ("\u0e01", "\u0e33", 0),  # SARA AM is a letter
        ("\U0001f468", "\u200d", -1),
        ("\u200d", "\U0001f469", -1),
        (",", "a", 1),
        (",", "1", 0),
        ("\u3002", "\u4e00", 1),
        ("a", ",", 0),
        ("'", "s", 0),
        ("\u4e00", "a", 1),
        ("\u4e00", "\u3042", 0),
        ("\u0430", "a", 1),
        ("a", "\n", 1),
        ("\n", "a", 1),
    ],
)
def test_rules(before, after, expected):
    assert rule(before, after) == expected


def test_bytes_of_one_character_stay_together():
    vocabulary = Vocabulary("bytes", (0x0A, 0x61, 0x84, 0xC3))
    table = rules(vocabulary)
    assert table[3, 2] == -1
    assert table[1, 3] == 0
    assert separators(vocabulary).tolist() == [0]


def test_separators_are_the_line_ends():
    vocabulary = Vocabulary("characters", ("\n", "a", "\u2028"))
    np.testing.assert_array_equal(separators(vocabulary), [0, 2])


def test_too_many_symbols_are_refused():
    many = Vocabulary("characters", tuple(map(chr, range(0x20000, 0x20000 + joints.MOST + 1))))
    with refused("data.min_count"):
        rules(many)
