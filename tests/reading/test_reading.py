"""A user's text in the symbols of a model."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmrnn.reading import vocabulary as module
from hmrnn.reading.vocabulary import Vocabulary, read_as
from refusals import refused

ASCII = Vocabulary("characters", tuple(map(chr, [10, *range(32, 127)])))
LOWER = Vocabulary("characters", tuple(" abcdefghijklmnopqrstuvwxyz"))
OPEN = Vocabulary("characters", tuple(" ab"), unknown=True)


def test_the_example_of_its_docstring() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0


@pytest.mark.parametrize(
    ("vocabulary", "text", "expected"),
    [
        (ASCII, "He said “no” – a naïve café", 'He said "no" - a naive cafe'),
        (ASCII, "left—so they — say…", "left - so they - say..."),
        (ASCII, "Straße ﬁne ½", "Strasse fine 1/2"),
        (ASCII, "cafe\u0301\u00ad \u200bend", "cafe end"),
        (ASCII, "\ufeffa\r\nb\rc", "a\nb\nc"),
        (ASCII, "3 € ☃\t.", "3     ."),
        (LOWER, "Äb—c", "ab c"),
        (LOWER, "IT", "it"),
        (OPEN, "a☃b", "a\ufffdb"),
    ],
)
def test_what_is_read(vocabulary: Vocabulary, text: str, expected: str) -> None:
    found = read_as(text, vocabulary)
    assert vocabulary.decode(found.indices) == expected
    assert "".join(found.symbols) == text
    assert found.counts.sum() == len(found.indices)


def test_what_is_done_with_unknown_symbols() -> None:
    assert OPEN.decode(read_as("a☃b", OPEN, "skip").indices) == "ab"
    assert ASCII.decode(read_as("a☃b", ASCII).indices) == "a b"
    assert ASCII.decode(read_as("a☃b", ASCII, "skip").indices) == "ab"
    with refused():
        read_as("é☃b", ASCII, "refuse")
    assert ASCII.decode(read_as("é", ASCII, "refuse").indices) == "e"
    with refused():
        read_as("a", ASCII, "drop")  # type: ignore[arg-type]
    bare = Vocabulary("characters", ("a", "b"))
    assert (
        read_as("a☃☃", bare).notes[0].endswith("at position 1; that is most of the text: train a model on text like it")
    )
    found = read_as("a☃☃b", bare)
    assert bare.decode(found.indices) == "ab"
    assert found.notes == ("2 symbols that training never showed, left out: '☃' (U+2603) at position 1",)


def test_bytes() -> None:
    vocabulary = Vocabulary("bytes", tuple(b" ab"))
    found = read_as("aéb", vocabulary)
    assert vocabulary.decode(found.indices) == "a  b"
    assert found.symbols == ("a", "\\xc3", "\\xa9", "b")
    assert "byte 0xc3 at position 1, byte 0xa9 at position 2" in found.notes[0]


def test_known_symbols_need_no_note() -> None:
    french = Vocabulary("characters", tuple(" aé—"))
    assert read_as("a—é", french).notes == ()
    assert french.decode(read_as("a—é", french).indices) == "a—é"
    assert read_as("a\r\nb", ASCII).notes == ()


@given(st.text(), st.sampled_from([ASCII, LOWER, OPEN]), st.sampled_from(["replace", "skip"]))
def test_any_text_can_be_read(text: str, vocabulary: Vocabulary, unknown: module.Unknown) -> None:
    found = read_as(text, vocabulary, unknown)
    assert "".join(found.symbols) == text
    assert len(found.counts) == len(text)
    assert found.counts.sum() == len(found.indices)
