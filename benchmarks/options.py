"""What options of training and of the read-out do, in small runs with several seeds on data that is free.

    python benchmarks/options.py time         the time as a further input, on lines of the Python manual
    python benchmarks/options.py sampling     a share of the model's own samples as input
    python benchmarks/options.py clipping     clipping by value and by norm, at a learning rate that needs it
    python benchmarks/options.py tree         a tree-LSTM over the hierarchy beside flat read-outs, on pieces of texts
    python benchmarks/options.py brackets     the same on sums in brackets

Prints a line per run; --out appends it as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hmrnn
from hmrnn.config import Config, TrainConfig
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.novel import novel, novel_file
from hmrnn.kinds.text.settings import TextData, TextModelConfig
from hmrnn.kinds.text.sources import manual
from hmrnn.training.loop import train
from hmrnn.training.rundir import RunDirectory
from hmrnn.training.trainer import Trainer

Rows = Iterator[tuple[str, dict[str, Any]]]
"""The name of a setting, and what was measured."""


def manual_lines(count: int = 3000) -> list[str]:
    """Lines of 20 to 70 characters of the manual inside CPython, in an order drawn by a seed of its own."""
    whole = {line.strip() for line in manual().splitlines() if line.isascii()}
    lines = sorted(line for line in whole if 20 <= len(line) <= 70)
    return [lines[k] for k in np.random.default_rng(0).permutation(len(lines))[:count]]


def trained(config: Config) -> tuple[TextModel, float]:
    """A model of text, and its best validation in bits per symbol."""
    corpus = load_corpus(config.data)
    trainer = Trainer(config, corpus, torch.device("cpu"))
    bits = [event["bits"] for event in train(trainer, RunDirectory(Path("/dev/null"), writer=False))
            if event["event"] == "valid"]  # fmt: skip
    return TextModel(trainer.model.eval(), corpus.vocabulary, trainer.config), min(bits)


def lines_config(folder: str, seed: int, **how: Any) -> Config:
    """An LSTM of 2 layers of 96 units on the lines."""
    path = Path(folder) / "lines.txt"
    if not path.exists():
        path.write_text("".join(f"{line}\n" for line in manual_lines()))
    model = {name: how.pop(name) for name in ("time",) if name in how}
    train_how = {"epochs": 8, "batch_size": 32, "learning_rate": 0.005, "cool_down": 0.7, "patience": 99} | how
    return Config(
        TextData(format="lines", path=(str(path),), valid_fraction=0.1, test_fraction=0.02),
        TextModelConfig("lstm", 32, (96,), 2, 96, **model),
        TrainConfig(**train_how, seed=seed, device="cpu", log_every=10**6, checkpoint_every=1e9),
    )


def known_words(texts: list[str]) -> float:
    """The share of the words of two or more letters that are words of the lines."""
    known = {word for line in manual_lines() for word in line.split()}
    words = [word for text in texts for word in text.split() if len(word) > 1]
    return sum(word in known for word in words) / max(1, len(words))


def time(folder: str, seed: int) -> Rows:
    """Bits, and how far generated lines miss an asked length of 30 or 60."""
    for setting in ("none", "elapsed", "left"):
        model, bits = trained(lines_config(folder, seed, time=setting))
        missed = []
        for length in (30, 60):
            limit = length + 1 if setting == "left" else 200  # with the line end
            texts = model.generate([""] * 60, limit, seed=seed)
            missed += [abs(len(text.rstrip("\n")) - length) for text in texts]
        yield setting, {"bits": bits, "characters_off": statistics.mean(missed)}


def sampling(folder: str, seed: int) -> Rows:
    """Bits, and the share of known words in generated lines."""
    for name, schedule in (("none", (0.0, 0.0)), ("0 to 0.25", (0.0, 0.25))):
        model, bits = trained(lines_config(folder, seed, scheduled_sampling=schedule))
        yield name, {"bits": bits, "known_words": known_words(model.generate([""] * 100, 80, seed=seed))}


def clipping(folder: str, seed: int) -> Rows:
    """Bits at a learning rate ten times as high as in the other rows."""
    for name, how in (
        ("neither", {"clip_norm": 0.0}),
        ("norm 1", {}),
        ("value 0.001", {"clip_norm": 0.0, "clip_value": 0.001}),
    ):
        _, bits = trained(lines_config(folder, seed, learning_rate=0.05, skip_nonfinite=True, **how))
        yield name, {"bits": bits}


def nested(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sums in brackets, such as "(1+0)(1+1+0+1)", and whether one of them is 3 or more.

    What the answer needs is in the phrases: a hierarchy that follows the brackets finds it step by step.
    """
    draw, found = np.random.default_rng(seed), {}
    while len(found) < count:
        parts = [draw.integers(0, 2, draw.integers(2, 6)) for _ in range(draw.integers(2, 6))]
        large = max(part.sum() for part in parts) >= 3
        found["".join(f"({'+'.join(map(str, part))})" for part in parts)] = "large" if large else "small"
    return list(found), list(found.values())


def pieces(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Pieces of 30 characters from the manual and from The Adventures of Sherlock Holmes (hmrnn[demo])."""
    source = novel_file()
    if source is None:
        raise SystemExit("the novel is missing: pip install 'hmrnn[demo]'")
    draw, found = np.random.default_rng(seed), {}
    for label, text in (("manual", manual()), ("novel", novel(source))):
        text = " ".join(text.split())
        found |= {text[start : start + 30]: label for start in draw.integers(0, len(text) - 30, count // 2).tolist()}
    return list(found), list(found.values())


def tree(folder: str, seed: int) -> Rows:
    """Accuracy on pieces of two texts."""
    yield from read_outs(*pieces(900, 0), seed)


def brackets(folder: str, seed: int) -> Rows:
    """Accuracy on sums in brackets."""
    yield from read_outs(*nested(900, 0), seed)


def read_outs(X: list[str], y: list[str], seed: int) -> Rows:
    """Accuracy on 300 sequences that training has not shown."""
    order = np.random.default_rng(0).permutation(len(X))
    X, y = [X[k] for k in order], [y[k] for k in order]
    for name, how in (
        ("attention over steps", {}),
        ("attention over segments", {"attend": "segments"}),
        ("last", {"read_out": "last"}),
        ("tree", {"read_out": "tree"}),
    ):
        model = hmrnn.HMClassifier(32, epochs=10, patience=10, batch_size=32, random_state=seed, **how)
        yield name, {"accuracy": model.fit(X[300:], y[300:]).score(X[:300], y[:300])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "sampling", "clipping", "tree", "brackets"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", help="a file to which results are appended, one JSON object per line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for seed in given.seeds:
            for setting, measured in globals()[given.what](folder, seed):
                row = {"what": given.what, "setting": setting, "seed": seed, **measured}
                print(
                    " ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True
                )
                if given.out:
                    with open(given.out, "a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
