"""Text in plain ASCII."""

from __future__ import annotations

import doctest
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmrnn.reading import plain as module
from hmrnn.reading.plain import plain, plain_blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It’s a “café”, „naïve“ and «déjà vu».", "It's a \"cafe\", \"naive\" and \"deja vu\"."),
        ("1914–1918; north‑east; −3; 4 × 5; ½ m²", "1914-1918; north-east; -3; 4 x 5; 1/2 m2"),
        ("He left—so they say — at ten…", "He left - so they say - at ten..."),
        ("Straße, Ærø, Łódź, œuvre, ﬁnd", "Strasse, Aero, Lodz, oeuvre, find"),
        ("non\u00a0breaking\ta\u0301 tab\nand a line", "non breaking a tab\nand a line"),
        ("Москва costs €3", "Москва costs €3"),
        ("", ""),
        ("\ufe31\u2033\u00b4", " - \"'"),
    ],
)  # fmt: skip
def test_examples(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_the_example_of_its_docstring() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0


@given(st.text())
def test_it_is_done_once_and_leaves_ascii_alone(text: str) -> None:
    once = plain(text)
    assert plain(once) == once
    assert not any(unicodedata.combining(letter) for letter in once)
    ascii_only = "".join(letter for letter in text if letter.isascii() and letter != "\t")
    assert plain(ascii_only) == ascii_only


@given(st.lists(st.text(alphabet="ab1 \n\u00a0\u0301\u00e9\u2014\u2015\u2026\u00bd\u00a8", max_size=6)))
def test_blocks_give_what_the_whole_gives(blocks: list[str]) -> None:
    assert "".join(plain_blocks(blocks)) == plain("".join(blocks))


def test_blocks_do_not_pile_up() -> None:
    assert len(next(plain_blocks(["\u0416" * 100_000, "a"]))) == 100_000
