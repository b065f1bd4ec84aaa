"""Text without its spaces: what is left, where they stood, and that it is a corpus of its own."""

from pathlib import Path

import numpy as np
import pytest
from corpora import PROSE, decoded, ptb, write

from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.settings import TextData
from hmrnn.kinds.text.spaces import is_space, without_spaces
from hmrnn.reading.vocabulary import code_points
from hmrnn.utils import archives


def restored(text: str, spaces: np.ndarray) -> str:
    """The text with single spaces where some were taken out."""
    return "".join(symbol + " " * int(flag) for symbol, flag in zip(text, spaces, strict=True))


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "single"),
    [("the cat sat", "the cat sat"), ("  a \t b\n c ", "a b\n c "), ("a", "a"), ("abc", "abc"), ("   ", "")],
)
def test_spaces_are_noted_across_blocks(text: str, single: str, block: int) -> None:
    codes = code_points(text)
    blocks = [codes[k : k + block] for k in range(0, len(codes), block)]
    left, flags = map(np.concatenate, zip(*without_spaces(blocks, "characters")))
    assert restored("".join(map(chr, left)), flags) == single


def test_what_is_a_space() -> None:
    every = np.arange(0x3100)
    found = {chr(code) for code in every[is_space(every, "characters")]}
    line_ends = set("\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029")
    assert found == {chr(code) for code in every if chr(code).isspace()} - line_ends
    assert every[is_space(every[:256], "bytes").nonzero()[0]].tolist() == [9, 32]


def test_every_text_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_BLOCK", 7)
    prose = write(tmp_path / "prose.txt", PROSE)
    letters = write(tmp_path / "text8", "the cat sat on the mat " * 20)
    for split in ("train", "valid", "test"):
        write(tmp_path / "ptb" / f"ptb.char.{split}.txt", ptb("the cat\nsat\n"))
    for config, whole in (
        (TextData(path=(prose,)), PROSE),
        (TextData(path=(prose,), bytes=True), PROSE),
        (TextData(format="text8", path=(letters,)), "the cat sat on the mat " * 20),
        (TextData(format="ptb", path=(str(tmp_path / "ptb"),)), "the cat\nsat\n" * 3),
        (TextData(format="enwik8", path=(letters,)), "the cat sat on the mat " * 20),
    ):
        corpus = load_corpus(TextData(**{**vars(config), "remove_spaces": True}))
        text = "".join(decoded(corpus))
        assert text == whole.replace(" ", "")
        assert corpus.name.endswith(" without spaces")
        if corpus.vocabulary.kind == "characters":
            spaces = np.concatenate([corpus.spaces[split] for split in ("train", "valid", "test")])
            assert restored(text, spaces) == whole
        for split, flags in corpus.spaces.items():
            assert len(flags) == len(getattr(corpus, split))
        assert load_corpus(config).spaces == {}
