"""What a report and the demo show of handwriting and a model trained on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hmrnn.analysis.sections import Section
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.figures import writing
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import StrokeCorpus
from hmrnn.plots.charts import timescales
from hmrnn.pretrained.commands import agreement

LINES, SAMPLES = 20, 3
"""Lines whose segments are counted, and lines that are written."""


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
        yield from agreement(against_pen_ups(found, some))
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
