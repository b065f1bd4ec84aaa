"""A lexicon as files that tokenizers read: a Unigram model of Hugging Face, and a list of pieces as SentencePiece has.

The pieces are words with the log of their share, and every symbol of the vocabulary by itself, for what is no word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from hmrnn.errors import InputError
from hmrnn.kinds.text.spaces import CHARACTERS
from hmrnn.pretrained.export import check_new
from hmrnn.reading.vocabulary import Vocabulary
from hmrnn.utils.files import write

UNKNOWN = "\ufffd"
"""The piece of unknown symbols; <unk> may stand in a text."""
_LINE_ENDS = r"[\n\r]"


def scored(counts: Mapping[str, float], vocabulary: Vocabulary) -> dict[str, float]:
    """The log-probability of each piece: words, the most frequent first, then symbols that are none."""
    known = sorted((-count, word) for word, count in counts.items() if UNKNOWN not in word)
    total = -sum(count for count, _ in known)
    scores = {word: math.log(-count / total) for count, word in known}
    alone = min(scores.values(), default=0.0) - 1
    return dict.fromkeys((*scores, *map(str, vocabulary.symbols)), alone) | scores


def write_tokenizer(
    folder: Path, counts: Mapping[str, float], vocabulary: Vocabulary, *, spaces: bool = False
) -> dict[str, float]:
    """Write a tokenizer of words with their counts to a new ``folder``; returns its pieces and their scores.

    tokenizer.json and tokenizer_config.json are what ``PreTrainedTokenizerFast`` and ``Tokenizer.from_file`` load;
    vocab.tsv has a piece and its score per line. Line ends are pieces of their own, and white space within a line is
    left out unless ``spaces``.
    """
    if vocabulary.kind != "characters":
        raise InputError("a tokenizer has pieces of characters, and this model reads bytes")
    check_new(folder)
    scores = scored(counts, vocabulary)
    listed = {UNKNOWN: 0.0, **scores}
    space = "".join(rf"\x{{{code:x}}}" for code in CHARACTERS.tolist())
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 0, "content": UNKNOWN, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True,
            }
        ],
        "normalizer": None if spaces else {"type": "Replace", "pattern": {"Regex": f"[{space}]"}, "content": ""},
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": _LINE_ENDS}, "behavior": "Isolated", "invert": False
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "Unigram", "unk_id": 0, "vocab": [*listed.items()], "byte_fallback": False
        },
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN, "clean_up_tokenization_spaces": False}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        write(folder / name, f"{json.dumps(content, ensure_ascii=False, indent=1)}\n".encode())
    shown = ((piece, score) for piece, score in listed.items() if piece.strip())
    lines = "".join(f"{piece}\t{score:.6g}\n" for piece, score in shown)
    write(folder / "vocab.tsv", lines.encode())
    return scores
