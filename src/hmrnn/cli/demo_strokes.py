"""``hmrnn demo --handwriting``: train on built-in lines, then show what the model predicts, finds and writes."""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path

import numpy as np

from hmrnn.analysis import scores as boundary_scores
from hmrnn.analysis.gold import against_pen_ups
from hmrnn.analysis.scores import BoundaryScores
from hmrnn.cli import demo, display
from hmrnn.config import Config, ModelConfig
from hmrnn.data import StrokeCorpus, Strokes, load_strokes
from hmrnn.plots.curves import curves
from hmrnn.plots.save import save_drawing, save_figure
from hmrnn.plots.strokes import figure5
from hmrnn.presets import PRESETS
from hmrnn.pretrained.load import load
from hmrnn.pretrained.strokes import StrokeModel
from hmrnn.training.loop import read_metrics
from hmrnn.training.rundir import RunDirectory

BIAS = 1.0


def main(out: Path, *, fresh: bool, quick: bool) -> int:
    """Train unless it is done, then show; exit status."""
    config = _quick(PRESETS["handwritten"]) if quick else PRESETS["handwritten"]
    run = RunDirectory(out)
    again = f"hmrnn demo --handwriting --out {shlex.quote(str(out))}" + " --quick" * quick
    status = demo.train_once(config, run, fresh, again)
    if status != 0:
        return status
    if quick:
        print(f"{demo.QUICK}, and what it writes is scribble")
    model, corpus = load(run.path), load_strokes(config.data)
    assert isinstance(model, StrokeModel)
    _show_likelihood(model, corpus)
    folder = run.path / "figures"
    folder.mkdir(exist_ok=True)
    _show_segments(model, corpus, folder)
    _show_writing(model, corpus, folder, points=40 if quick else 300)
    save_figure(curves(read_metrics(run.path / "metrics.jsonl")), folder / "curves.png")
    print(f"\nThe model is in {run.path}. Try:  hmrnn generate -m {run.path} --samples 5 --bias 1 --seconds 8 --seed 1")
    return 0


def _quick(config: Config) -> Config:
    data = dataclasses.replace(config.data, lines=20)
    model = ModelConfig(hidden_size=(12,), output_size=12, mixtures=3)
    return Config(data, model, dataclasses.replace(config.train, epochs=1), config.regularise)


def _show_likelihood(model: StrokeModel, corpus: StrokeCorpus) -> None:
    result = model.score(corpus.valid)
    rows = [
        ("one Gaussian for all steps", one_gaussian(corpus.train, corpus.valid)),
        ("HM-LSTM", result.log_likelihood),
    ]
    title = f"\nLog-likelihood of a line, mean over {len(corpus.valid)} validation lines"
    display.print_table(title, ("model", "nats"), [(name, f"{nats:.1f}") for name, nats in rows])


def one_gaussian(train: Strokes, valid: Strokes) -> float:
    """Nats per line of ``valid`` if every step had the distribution of all steps of ``train``, in normalised units."""

    def predicted(strokes: Strokes) -> np.ndarray:
        return np.concatenate([line[1:] for line in strokes]).astype(np.float64)

    known, steps = predicted(train), predicted(valid)
    mean, deviation, up = known[:, :2].mean(axis=0), known[:, :2].std(axis=0), known[:, 2].mean()
    z = (steps[:, :2] - mean) / deviation
    rho = float(np.corrcoef(known[:, :2].T)[0, 1])
    exponent = ((z**2).sum(axis=1) - 2 * rho * z.prod(axis=1)) / (2 * (1 - rho**2))
    position = -exponent - math.log(2 * math.pi) - 0.5 * math.log(1 - rho**2)
    pen = np.where(steps[:, 2] > 0.5, math.log(up), math.log(1 - up))
    return float((position + pen).sum() / len(valid))


def _show_segments(model: StrokeModel, corpus: StrokeCorpus, folder: Path) -> None:
    found = [model.segment(line) for line in corpus.valid]
    scores = [against_pen_ups(segments, line) for segments, line in zip(found, corpus.valid)]
    rows = []
    for level in range(1, found[0].levels + 1):
        near: dict[int, BoundaryScores] = {
            tolerance: boundary_scores.pooled(score[level][tolerance] for score in scores)
            for tolerance in boundary_scores.TOLERANCES
        }
        count = sum(len(segments.ends(level)) for segments in found)
        length = sum(map(len, found)) / count
        rows.append((f"{level}", f"{length:.1f}", *(f"{score.f1:.3f}" for score in near.values())))
    title = "\nWhere the segments end, beside where the pen was lifted (it was never told to end there)"
    header = ("level", "points per segment", *(f"F1, tolerance {t}" for t in boundary_scores.TOLERANCES))
    display.print_table(title, header, rows)
    levels = range(1, found[0].levels + 1)
    save_figure(figure5(corpus.valid[0], found[0], levels=levels), folder / "figure5.png")
    print(f"\nFigure 5 of the paper for a validation line, and the training curves: {folder}/")


def _show_writing(model: StrokeModel, corpus: StrokeCorpus, folder: Path, points: int) -> None:
    lines = model.sheet(5, points, bias=BIAS, seed=1)
    for name, seconds in (("writing.png", 0.0), ("writing.svg", 8.0)):
        save_drawing(lines, folder / name, seconds=seconds)
    prime = corpus.valid[0]
    after = model.sheet(2, points, bias=BIAS, prime=prime, seed=1)
    save_drawing(after, folder / "primed.png", prime=prime)
    print(f"Five lines that it wrote (bias {BIAS:g}), still and writing themselves: {folder}/writing.png, writing.svg")
    print(f"Two that go on from a validation line in its hand: {folder}/primed.png")
