"""What becomes of learned words in use: a tokenizer beside SentencePiece, and probabilities of ends that come true.

    python benchmarks/words_use.py RUN... [--out FILE.jsonl]

RUN is a directory of ``hmrnn words`` on a text with spaces. Its tokenizer is written, loaded by ``transformers`` or
``tokenizers``, and cuts the lines of the test part, as do the head and SentencePiece's unigram and BPE models of equal
vocabulary, trained on the training part without its spaces; once more with the test part, without its spaces, among
what both read. Of the ends in the test part that neither a line end nor a rule decides, ten ranges of probability are
compared with the spaces. Needs tokenizers and sentencepiece.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from hmrnn import load
from hmrnn.kinds.text.commands import DRAWS
from hmrnn.kinds.text.words.joints import rules
from hmrnn.kinds.text.words.segmental import best_segmentation
from hmrnn.kinds.text.words.tokenizer import write_tokenizer
from words_suite import lines_of, scored, sentencepiece


def viterbi(line: str, scores: dict[str, float]) -> list[str]:
    """The most probable pieces of a line."""
    longest = max(map(len, scores))
    table = np.full((len(line), longest, 1), -1e30)
    for start in range(len(line)):
        for k in range(min(longest, len(line) - start)):
            table[start, k, 0] = scores.get(line[start : start + k + 1], -1e30)
    [ends] = best_segmentation(torch.from_numpy(table))
    return [line[a:b] for a, b in itertools.pairwise([0, *ends])]


def fast(folder: Path) -> Callable[[str], list[str]]:
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        print(type(tokenizer).__name__, len(tokenizer))
        return tokenizer.tokenize
    except ImportError:
        from tokenizers import Tokenizer

        loaded = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda line: loaded.encode(line).tokens


def compare(run: str) -> dict[str, object]:
    model = load(run)
    corpus = model.corpus()
    whole = {"".join(words): words for words in lines_of(corpus, "test")}
    cut = model.find_words("\n".join(whole)).spaced().split("\n")
    ways = {"head": dict(zip(whole, map(str.split, cut))).__getitem__}
    known = [line for line in whole if set(line) <= set(map(str, corpus.vocabulary.symbols))]
    train = ["".join(words) for words in lines_of(corpus)]
    result: dict[str, object] = {"corpus": corpus.name, "lines": len(known)}
    read = {"tokenizer": corpus.train, "test counted": np.concatenate([corpus.train, corpus.test])}
    with tempfile.TemporaryDirectory() as place:
        for name, symbols in read.items():
            scores = write_tokenizer(Path(place, name), model.count_words(symbols, draws=DRAWS), corpus.vocabulary)
            ways[name] = fast(Path(place, name))
            same = sum(ways[name](line) == viterbi(line, scores) for line in known)
            result |= {f"{name}: pieces": len(scores), f"{name}: as Viterbi": same}
            for kind in ("unigram", "bpe"):
                lines = train if name == "tokenizer" else [*train, *whole]
                rival = sentencepiece(kind, len(scores), lines, hard_vocab_limit=False)
                ways[f"{name}: SentencePiece {kind}"] = rival
    symbols = sum(map(len, whole))
    for name, way in ways.items():
        pieces = sum(len(way(line)) for line in whole)
        result[name] = {"boundary, word F1": scored(list(whole.values()), way), "symbols per piece": symbols / pieces}
    return result


def reliability(run: str) -> dict[str, object]:
    """For ten ranges: mean probability, share of spaces, places; the expected error; precision, recall by threshold."""
    model = load(run)
    corpus = model.corpus()
    symbols, gold = np.asarray(corpus.test), corpus.spaces["test"] > 0
    chance = model.find_words(corpus.vocabulary.decode(symbols)).probabilities[:, 0]
    free = np.append(rules(corpus.vocabulary)[symbols[:-1], symbols[1:]] == 0, False)
    chance, gold = chance[free], gold[free]
    place = (chance * 10).astype(int).clip(max=9)
    ranges = [(float(chance[place == k].mean()), float(gold[place == k].mean()), int((place == k).sum()))
              for k in range(10) if (place == k).any()]  # fmt: skip
    error = sum(count * abs(said - true) for said, true, count in ranges) / len(chance)
    found = {x: chance >= x for x in (0.2, 0.5, 0.8)}
    shares = {str(x): (float(gold[ends].mean()), float(ends[gold].mean())) for x, ends in found.items()}
    return {"ranges": ranges, "expected error": error, "precision, recall": shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+")
    parser.add_argument("--out")
    given = parser.parse_args()
    for run in given.run:
        line = json.dumps(compare(run) | reliability(run), ensure_ascii=False)
        print(line, flush=True)
        if given.out:
            with open(given.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
