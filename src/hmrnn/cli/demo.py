"""``hmrnn demo``: train on the Python manual, then show what the model predicts, finds and writes."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from hmrnn.analysis import yardsticks
from hmrnn.cli import commands, display
from hmrnn.config import Config, ModelConfig
from hmrnn.data import Corpus, load_corpus
from hmrnn.errors import InputError
from hmrnn.inference.evaluate import evaluate
from hmrnn.inference.read import segment
from hmrnn.plots.curves import curves
from hmrnn.plots.save import save_figure
from hmrnn.plots.text import figure3, figure4
from hmrnn.presets import PRESETS
from hmrnn.pretrained.load import TextModel, load_text
from hmrnn.training.loop import read_metrics
from hmrnn.training.rundir import RunDirectory

QUICK = "\n--quick only shows that everything runs: a model this small and this young has learned next to nothing"
PASSAGE = 270
"""Symbols shown: the paper's figures have three rows of 90."""


def main(out: Path, *, fresh: bool, quick: bool) -> int:
    """Train unless it is done, then show; exit status."""
    config = _quick(PRESETS["demo"]) if quick else PRESETS["demo"]
    run = RunDirectory(out)
    again = f"hmrnn demo --out {shlex.quote(str(out))}" + " --quick" * quick
    status = train_once(config, run, fresh, again)
    if status != 0:
        return status
    if quick:
        print(QUICK)
    model, corpus = load_text(run.path), load_corpus(config.data)
    _show_bits(model, corpus, quick)
    _show_segments(model, corpus, run)
    print("\nA sample (temperature 0.7), after the prompt 'The ':\n")
    print("The " + model.generate("The ", 400, temperature=0.7, seed=1))
    print(f"\nThe model is in {run.path}. Try:  hmrnn segment -m {run.path} 'The value of the expression is a string.'")
    return 0


def train_once(config: Config, run: RunDirectory, fresh: bool, again: str) -> int:
    """Train, go on with a run that was interrupted, or find it finished; exit status."""
    if not run.holds_run or fresh:
        return commands.run_to_end(config, run, overwrite=fresh, again=again)
    if run.config() != config:
        raise InputError(f"{run.path} holds another run; replace it by --fresh, or choose another --out")
    if run.newest_progress().get("finished"):
        print(f"{run.path} holds a finished demo; showing it ({again} --fresh trains again)\n")
        return 0
    return commands.run_to_end(config, run, resume=True, again=again)


def _quick(config: Config) -> Config:
    data = dataclasses.replace(config.data, valid_fraction=0.45, test_fraction=0.45)
    model = ModelConfig(embedding_size=8, hidden_size=(16,), output_size=16)
    train = dataclasses.replace(config.train, epochs=1, batch_size=128, length=36, validation_symbols=2000)
    return Config(data, model, train, config.regularise)


def _show_bits(model: TextModel, corpus: Corpus, quick: bool) -> None:
    valid = corpus.valid[: 2000 if quick else None]
    result = evaluate(model.network, valid, streams=16, warmup=200)
    n = len(corpus.vocabulary)
    texts = [corpus.vocabulary.decode(part).encode() for part in (corpus.train, valid)]
    per_character = len(texts[1]) / len(valid)
    rows = [
        ("unigram frequencies", yardsticks.unigram(corpus.train, valid, n)),
        ("5-gram, Witten-Bell", yardsticks.ngram(corpus.train, valid, n)),
        ("xz -9, after the training text", yardsticks.xz(*texts) * per_character),
        ("HM-LSTM", result.bits),
    ]
    title = f"\nBits per character on the validation text ({len(valid):,} characters)"
    display.print_table(title, ("model", "bits"), [(name, f"{bits:.3f}") for name, bits in rows])


def _show_segments(model: TextModel, corpus: Corpus, run: RunDirectory) -> None:
    context = 500
    symbols = corpus.valid[: context + PASSAGE]
    found = segment(model.network, symbols, corpus.vocabulary.pieces(symbols))[context:]
    print(f"\nSegments the detectors found in {len(found)} characters of it, never shown a boundary:\n")
    print(display.segmentation(found))
    folder = run.path / "figures"
    folder.mkdir(exist_ok=True)
    for name, figure in (
        ("figure3", figure3(found)),
        ("figure4", figure4(found)),
        ("curves", curves(read_metrics(run.path / "metrics.jsonl"))),
    ):
        save_figure(figure, folder / f"{name}.png")
    print(f"\nFigures 3 and 4 of the paper for this passage, and the training curves: {folder}/")
