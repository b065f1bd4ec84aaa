"""``hmrnn demo``: train on built-in data, then show what the model predicts, finds and writes."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from hmrnn.analysis import scores
from hmrnn.cli import display
from hmrnn.cli.arguments import DemoArguments
from hmrnn.cli.report import passage
from hmrnn.cli.target import DEMO_OF_MANUAL, preset_for
from hmrnn.cli.train import run_to_end
from hmrnn.config import Config, ModelConfig
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.drawing import save_drawing
from hmrnn.kinds.strokes.evaluate import one_gaussian
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import StrokeCorpus
from hmrnn.kinds.text import yardsticks
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.evaluate import evaluate, find
from hmrnn.kinds.text.gold import against_white_space
from hmrnn.kinds.text.model import TextModel
from hmrnn.plots.curves import curves
from hmrnn.plots.save import save_figure
from hmrnn.presets import PRESETS
from hmrnn.pretrained.load import load
from hmrnn.training.metrics import read_metrics
from hmrnn.training.rundir import RunDirectory


def run(arguments: DemoArguments) -> int:
    name, quick = "handwriting" if arguments.handwriting else "demo", arguments.quick
    directory = RunDirectory(Path(arguments.out or f"runs/{name}" + "-quick" * quick))
    config = preset_for("handwritten" if arguments.handwriting else "demo")[1]
    config = _quick(config) if quick else config
    again = "hmrnn demo" + " --handwriting" * arguments.handwriting
    again += f" --out {shlex.quote(str(directory.path))}" + " --quick" * quick
    status = _train(config, directory, arguments.fresh, again)
    if status != 0:
        return status
    if quick:
        print("\n--quick only shows that every step runs: a model this small has learned next to nothing")
    model, folder = load(directory.path), directory.path / "figures"
    folder.mkdir(exist_ok=True)
    if isinstance(model, TextModel):
        try_this = _show_text(model, model.corpus(), folder, quick)
    else:
        assert isinstance(model, StrokeModel)
        try_this = _show_strokes(model, model.corpus(), folder, quick)
    save_figure(curves(read_metrics(directory.path / "metrics.jsonl")), folder / "curves.png")
    print(f"\nThe figures and the training curves are in {folder}/, the model is in {directory.path}.")
    print(f"Try:  {try_this.format(shlex.quote(str(directory.path)))}")
    return 0


def _train(config: Config, run: RunDirectory, fresh: bool, again: str) -> int:
    """Train, resume an interrupted run, or find it finished; exit status."""
    presets = [PRESETS["demo"], DEMO_OF_MANUAL, PRESETS["handwritten"]]
    if run.holds_run and run.config() not in [*presets, *map(_quick, presets)]:
        raise InputError(f"{run.path} holds another run, no demo of this version; choose another --out, or remove it")
    if not run.holds_run or fresh:
        return run_to_end(config, run, overwrite=fresh, again=again)
    if run.config() != config:
        raise InputError(f"{run.path} holds another demo; replace it by --fresh, or choose another --out")
    if run.newest_progress().get("finished"):
        print(f"{run.path} holds a finished demo, which is shown now ({again} --fresh trains again)\n")
        return 0
    return run_to_end(config, run, resume=True, again=again)


def _quick(config: Config) -> Config:
    """The demo with a tiny model and little data."""
    model = ModelConfig(embedding_size=8, hidden_size=(16,), output_size=16, mixtures=3)
    data = dataclasses.replace(config.data, lines=20)
    train = dataclasses.replace(config.train, epochs=1)
    if config.data.is_text:
        data = dataclasses.replace(config.data, valid_fraction=0.45, test_fraction=0.45)
        train = dataclasses.replace(train, batch_size=128, length=36, validation_symbols=2000)
    return dataclasses.replace(config, data=data, model=model, train=train)


def _show_text(model: TextModel, corpus: Corpus, folder: Path, quick: bool) -> str:
    valid, n = corpus.valid[: 2000 if quick else None], len(corpus.vocabulary)
    texts = [corpus.vocabulary.decode(part).encode() for part in (corpus.train, valid)]
    rows = {
        "unigram frequencies": yardsticks.unigram(corpus.train, valid, n),
        "5-gram, Witten-Bell": yardsticks.ngram(corpus.train, valid, n),
        "xz -9, after the training text": yardsticks.xz(*texts) * len(texts[1]) / len(valid),
        "HM-LSTM": evaluate(model.network, valid, streams=16, warmup=200).bits,
    }
    title = f"\nBits per character on the validation text ({len(valid):,} characters)"
    display.print_table(title, ("model", "bits"), [(name, f"{bits:.3f}") for name, bits in rows.items()])
    found = passage(model, corpus)
    print(f"\nSegments that the detectors found in {len(found)} characters of it; no boundary was shown in training:\n")
    print(display.segmentation(found))
    ends = against_white_space(find(model.network, valid, streams=16, warmup=200), valid, corpus.vocabulary)
    title = "\nWhere the segments end, beside where words end (training was not shown to end segments there)"
    header = ("level", "characters per segment", "precision", "recall", "F1")
    lines = []
    for level, row in enumerate(ends[: found.levels], start=1):
        s = row.scores[0]
        lines.append((f"{level}", f"{row.length:.1f}", *(f"{share:.3f}" for share in (s.precision, s.recall, s.f1))))
    display.print_table(title, header, lines)
    for name in ("3", "4"):
        save_figure(model.figure(name, found.text, found), folder / f"figure{name}.png")
    print("\nA sample (temperature 0.7), after the prompt 'The ':\n")
    print("The " + model.generate("The ", 400, temperature=0.7, seed=1))
    return "hmrnn segment -m {} 'My friend had been watching the house for a long time.'"


def _show_strokes(model: StrokeModel, corpus: StrokeCorpus, folder: Path, quick: bool) -> str:
    rows = {
        "one Gaussian for all steps": one_gaussian(list(corpus.train), list(corpus.valid)),
        "HM-LSTM": model.score(corpus.valid).log_likelihood,
    }
    title = f"\nLog-likelihood of a line, mean over {len(corpus.valid)} validation lines"
    display.print_table(title, ("model", "nats"), [(name, f"{nats:.1f}") for name, nats in rows.items()])
    found = [model.segment(line) for line in corpus.valid]
    agreement = [against_pen_ups(segments, line) for segments, line in zip(found, corpus.valid)]
    table = []
    for level in range(1, found[0].levels + 1):
        near = [scores.pooled(one[level][tolerance] for one in agreement) for tolerance in scores.TOLERANCES]
        length = sum(map(len, found)) / sum(len(segments.ends(level)) for segments in found)
        table.append((f"{level}", f"{length:.1f}", *(f"{score.f1:.3f}" for score in near)))
    title = "\nWhere the segments end, beside where the pen was lifted (training was not shown to end segments there)"
    header = ("level", "points per segment", *(f"F1, tolerance {t}" for t in scores.TOLERANCES))
    display.print_table(title, header, table)
    save_figure(model.figure("5", corpus.valid[0], found[0]), folder / "figure5.png")
    points, prime = 40 if quick else 300, corpus.valid[0]
    lines = model.sheet(5, points, bias=1.0, seed=1)
    for name, seconds in (("writing.png", 0.0), ("writing.svg", 8.0)):
        save_drawing(lines, folder / name, seconds=seconds)
    save_drawing(model.sheet(2, points, bias=1.0, prime=prime, seed=1), folder / "primed.png", prime=prime)
    print(f"\nFive lines that the model wrote, still and animated: {folder}/writing.png, writing.svg")
    print(f"Two that continue a validation line in its style: {folder}/primed.png")
    return "hmrnn generate -m {} --samples 5 --bias 1 --seconds 8 --seed 1"
