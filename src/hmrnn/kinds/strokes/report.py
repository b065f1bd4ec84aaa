"""What a report and the demo show of handwriting and a model trained on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hmrnn.analysis import scores
from hmrnn.analysis.sections import Section
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.drawing import save_drawing
from hmrnn.kinds.strokes.evaluate import one_gaussian
from hmrnn.kinds.strokes.figures import writing
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import StrokeCorpus
from hmrnn.plots.charts import timescales
from hmrnn.plots.style import save_figure

LINES, SAMPLES = 20, 3
"""Lines whose segments are counted, and lines that are written."""
POINTS = 300
"""Points of each line that the demo writes."""


def sections(model: StrokeModel, corpus: StrokeCorpus) -> Iterator[Section]:
    trained = f"trained on {len(corpus.train):,} lines without being shown a boundary"
    yield Section(text=f"A network that reads pen movements, {trained}.")
    given = corpus.valid.conditions
    if model.network.rnn.num_boundaries:
        some = corpus.valid.select(range(min(LINES, len(corpus.valid))))
        found = model.segment_many(some)
        lengths = [np.concatenate([one.lengths(level) for one in found]) for level in range(1, found[0].levels + 1)]
        try:
            what = "A line of the validation part, coloured by its pen strokes and by segments."
            yield Section("Figure 5", what, figure=model.figure("5", some.select([0]), found[0]))
        except InputError as error:  # a line of dots alone
            yield Section("Figure 5", str(error))
        what = f"Lengths of the segments in {len(some)} lines."
        yield Section("Timescales", what, figure=timescales(lengths, unit="points"))
    try:
        told = [given[k % len(given)] for k in range(SAMPLES)] if given else None
        if model.network.window is None:
            lines = model.sheet(SAMPLES, 500, bias=0.5, seed=1, condition=told)
        else:
            said = corpus.valid.texts[:SAMPLES]
            lines = [line.steps for line in model.write_many(said, bias=0.5, seed=1, condition=told)]
        yield Section("Samples", "Lines that the model wrote; bias 0.5.", figure=writing(lines))
    except InputError as error:  # a model that cannot write yet
        yield Section("Samples", str(error))


def demo(model: StrokeModel, corpus: StrokeCorpus, folder: Path) -> Iterator[Section]:
    """What the demo found; figures go to ``folder``."""
    values = {
        "one Gaussian for all steps": one_gaussian(list(corpus.train), list(corpus.valid)),
        "HM-LSTM": model.score(corpus.valid).log_likelihood,
    }
    title = f"Log-likelihood of a line, mean over {len(corpus.valid)} validation lines"
    yield Section(title, table=[("model", "nats"), *((name, f"{nats:.1f}") for name, nats in values.items())])
    found = [model.segment(line) for line in corpus.valid]
    rows = [("level", "points per segment", *(f"F1, tolerance {t}" for t in scores.TOLERANCES))]
    for level, row in enumerate(against_pen_ups(found, corpus.valid)[: found[0].levels], start=1):
        rows.append((f"{level}", f"{row.length:.1f}", *(f"{score.f1:.3f}" for score in row.scores.values())))
    yield Section("Where the segments end, beside where the pen was lifted", table=rows)
    save_figure(model.figure("5", corpus.valid.select([0]), found[0]), folder / "figure5.png")
    prime = corpus.valid[0]
    lines = model.sheet(5, POINTS, bias=1.0, seed=1)
    for name, seconds in (("writing.png", 0.0), ("writing.svg", 8.0)):
        save_drawing(lines, folder / name, seconds=seconds)
    save_drawing(model.sheet(2, POINTS, bias=1.0, prime=prime, seed=1), folder / "primed.png", prime=prime)
    yield Section(text=f"Five lines that the model wrote, still and animated: {folder}/writing.png, writing.svg")
    yield Section(text=f"Two that continue a validation line in its style: {folder}/primed.png")
