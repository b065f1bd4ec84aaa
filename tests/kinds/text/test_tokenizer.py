"""A learned lexicon as a tokenizer: its files, and what the library tokenizers makes of them."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

import tiny
from hmrnn.kinds.text.words.segmental import best_segmentation
from hmrnn.kinds.text.words.tokenizer import scored, write_tokenizer
from hmrnn.reading.vocabulary import Vocabulary
from refusals import refused

LETTERS = Vocabulary("characters", tuple("\nabcd"))
COUNTS = {"ab": 4.0, "abc": 1.5, "cd": 2.0, "a": 0.5}


def viterbi(line: str, scores: dict[str, float]) -> list[str]:
    table = np.full((len(line), 4, 1), -1e30)
    for start, k in itertools.product(range(len(line)), range(4)):
        if start + k < len(line):
            table[start, k, 0] = scores.get(line[start : start + k + 1], -1e30)
    [ends] = best_segmentation(torch.from_numpy(table))
    return [line[a:b] for a, b in itertools.pairwise([0, *ends])]


def test_pieces_are_words_by_their_share_then_rarer_single_symbols():
    scores = scored(COUNTS, LETTERS)
    assert list(scores) == ["ab", "cd", "abc", "a", "\n", "b", "c", "d"]
    assert scores["ab"] == pytest.approx(math.log(4 / 8))
    assert scores["b"] < scores["a"]
    unknown = Vocabulary("characters", tuple("\nabcd\ufffd"))
    assert scored(COUNTS | {"\ufffd": 3.0, "a\ufffd": 2.0}, unknown) == scores | {"\ufffd": scores["b"]}


def test_files_of_a_tokenizer(tmp_path):
    scores = write_tokenizer(tmp_path / "made", COUNTS, LETTERS)
    made = json.loads((tmp_path / "made" / "tokenizer.json").read_text())
    assert made["model"]["vocab"][1:] == [[piece, score] for piece, score in scores.items()]
    lines = [line.split("\t") for line in (tmp_path / "made" / "vocab.tsv").read_text().splitlines()]
    assert {piece: float(score) for piece, score in lines[1:]} == pytest.approx(
        {piece: score for piece, score in scores.items() if piece != "\n"}, rel=1e-5
    )
    with refused():
        write_tokenizer(tmp_path / "made", COUNTS, LETTERS)
    with refused():
        write_tokenizer(tmp_path / "bytes", COUNTS, Vocabulary("bytes", tuple(b"\nabcd")))


def test_the_library_cuts_lines_as_the_viterbi_of_the_same_unigram(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="the library tokenizers is not installed")
    scores = write_tokenizer(tmp_path / "made", COUNTS, LETTERS)
    loaded = tokenizers.Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
    draw = np.random.default_rng(1)
    for _ in range(200):
        line = "".join(draw.choice(list("abcd"), 12))
        assert loaded.encode(line).tokens == viterbi(line, scores)
    found = loaded.encode("ab ab\ncd\u3000\u2603a")
    assert found.tokens == ["ab", "ab", "\n", "cd", "\u2603", "a"]
    assert found.ids[4] == 0  # unknown
    assert found.offsets[1] == (3, 5)
    assert loaded.decode(loaded.encode("abab\ncd").ids) == "abab\ncd"
    signs = tmp_path / "signs"  # as in Penn Treebank
    write_tokenizer(signs, {"a<unk>": 1.0, "b": 2.0}, Vocabulary("characters", tuple("<>abknu")))
    assert tokenizers.Tokenizer.from_file(str(signs / "tokenizer.json")).encode("ba<unk>").tokens == ["b", "a<unk>"]
    kept = tmp_path / "kept"
    write_tokenizer(kept, {"a b": 1.0}, Vocabulary("characters", tuple(" ab")), spaces=True)
    assert tokenizers.Tokenizer.from_file(str(kept / "tokenizer.json")).encode("a b").tokens == ["a b"]


def test_only_a_model_with_a_head_has_a_lexicon(tmp_path):
    assert tiny.hmrnn("export", "-m", "english-small", "--tokenizer", tmp_path / "made") == 2
    assert tiny.hmrnn("export", "-m", "english-small") == 2
    assert tiny.hmrnn("export", "-m", "english-small", "--tokenizer", tmp_path / "made", "--half") == 2
    assert not (tmp_path / "made").exists()
