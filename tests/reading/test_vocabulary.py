"""Vocabulary: text to indices and back, what it refuses, and what it becomes in JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmrnn import InputError
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused

LETTERS = Vocabulary("characters", ("\n", " ", "a", "b", "é", "😀"))
LETTERS_OR_UNKNOWN = Vocabulary("characters", LETTERS.symbols, unknown=True)
BYTES = Vocabulary("bytes", (10, 97, 98, 0xA9, 0xC3))


def test_index_is_the_place_among_the_symbols() -> None:
    assert LETTERS.encode("b é\n😀a").tolist() == [3, 1, 4, 0, 5, 2]
    assert LETTERS.decode([3, 1, 4, 0, 5, 2]) == "b é\n😀a"
    assert LETTERS.encode("").tolist() == []
    assert LETTERS.decode([]) == ""


def test_bytes_take_text_and_bytes() -> None:
    assert BYTES.encode("aé").tolist() == BYTES.encode(b"a\xc3\xa9").tolist() == [1, 4, 3]
    assert BYTES.decode([1, 4, 3]) == "aé"
    assert BYTES.decode([4, 1]) == "\ufffda"


def test_characters_refuse_bytes() -> None:
    with refused():
        LETTERS.encode(b"ab")


@given(st.text(min_size=1), st.booleans())
def test_round_trip(text: str, as_bytes: bool) -> None:
    if as_bytes:
        vocabulary = Vocabulary.of_codes("bytes", sorted(set(text.encode())))
    else:
        vocabulary = Vocabulary.of_codes("characters", sorted(map(ord, set(text))))
    indices = vocabulary.encode(text)
    assert vocabulary.decode(indices) == text
    assert set(indices.tolist()) == set(range(len(vocabulary)))


@pytest.mark.parametrize(
    ("size", "unknown", "dtype"),
    [(256, False, np.uint8), (256, True, np.uint16), (257, False, np.uint16), (65536, True, np.uint32)],
)
def test_smallest_type(size: int, unknown: bool, dtype: type) -> None:
    codes = [code for code in range(size + 2048) if not 0xD800 <= code <= 0xDFFF][:size]
    vocabulary = Vocabulary.of_codes("characters", codes, unknown)
    last = vocabulary.encode(chr(codes[-1]))
    assert last.dtype == dtype
    assert last.tolist() == [size - 1]


def test_every_byte_value() -> None:
    everything = bytes(range(256))
    vocabulary = Vocabulary("bytes", tuple(everything))
    assert vocabulary.encode(everything).tobytes() == everything


def test_unseen_symbols_are_named() -> None:
    with pytest.raises(InputError) as caught:
        LETTERS_OR_UNKNOWN.encode("abxzbaxywvuts")
    message = str(caught.value)
    assert "8 symbols" in message
    assert "'x' (U+0078) at position 2, 'z' (U+007A) at position 3, 'y' (U+0079) at position 7, " in message
    assert "'w' (U+0077) at position 8, 'v' (U+0076) at position 9 and 3 more" in message
    assert "\n" not in message


def test_unseen_byte_and_lone_surrogate_are_named() -> None:
    with refused():
        BYTES.encode("abc")
    with refused():
        LETTERS.encode("a\udcff")


def test_unseen_symbols_replaced() -> None:
    assert LETTERS_OR_UNKNOWN.encode("axb\x7f", unseen="replace").tolist() == [2, 6, 3, 6]
    assert LETTERS_OR_UNKNOWN.decode([2, 6, 3]) == "a\ufffdb"
    unknown_byte = Vocabulary("bytes", BYTES.symbols, unknown=True)
    assert unknown_byte.encode("ax", unseen="replace").tolist() == [1, 5]
    assert unknown_byte.decode([1, 5, 2]) == "a\ufffdb"


def test_nothing_to_replace_them_by() -> None:
    with refused():
        LETTERS.encode("ax", unseen="replace")


def test_pieces() -> None:
    assert LETTERS_OR_UNKNOWN.pieces([2, 0, 4, 6]) == ["a", "\n", "é", "\ufffd"]
    assert BYTES.pieces(np.array([1, 4, 3], np.uint8)) == ["a", "\\xc3", "\\xa9"]


@pytest.mark.parametrize("indices", [[6], [0, -1]])
def test_indices_out_of_range(indices: list[int]) -> None:
    with refused():
        LETTERS.decode(indices)
    with refused():
        LETTERS.pieces(indices)


@pytest.mark.parametrize("vocabulary", [LETTERS, LETTERS_OR_UNKNOWN, BYTES])
def test_json_round_trip(vocabulary: Vocabulary) -> None:
    again = Vocabulary.from_dict(json.loads(json.dumps(vocabulary.to_dict())))
    assert again == vocabulary
    assert len(again) == len(vocabulary) == len(vocabulary.symbols) + vocabulary.unknown


def test_equality_is_of_all_three_fields() -> None:
    assert LETTERS != LETTERS_OR_UNKNOWN
    assert Vocabulary("characters", LETTERS.symbols[1:]) != LETTERS
    assert Vocabulary("bytes", (49,)) != Vocabulary("characters", ("1",))


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"kind": "bytes", "symbols": [1], "unknown": False, "more": 1},
        {"kind": "words", "symbols": ["a"], "unknown": False},
        {"kind": ["bytes"], "symbols": [1], "unknown": False},
        {"kind": "bytes", "symbols": "ab", "unknown": False},
        {"kind": "bytes", "symbols": [1], "unknown": 0},
        {"kind": "bytes", "symbols": [1, 256], "unknown": False},
        {"kind": "bytes", "symbols": [True], "unknown": False},
        {"kind": "bytes", "symbols": ["a"], "unknown": False},
        {"kind": "characters", "symbols": ["a", "bc"], "unknown": False},
        {"kind": "characters", "symbols": [1], "unknown": False},
        {"kind": "characters", "symbols": ["\ud800"], "unknown": False},
        {"kind": "characters", "symbols": ["b", "a"], "unknown": False},
        {"kind": "characters", "symbols": ["a", "a"], "unknown": False},
        {"kind": "characters", "symbols": [], "unknown": True},
    ],
)
def test_strict_json(data: object) -> None:
    with refused():
        Vocabulary.from_dict(data)
