"""report.html of a run: results, curves, figures, samples and config on one page without external files."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn import kind
from hmrnn.analysis.render import as_html
from hmrnn.analysis.scores import TOLERANCES, ends_of, table
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.cli.display import duration
from hmrnn.config.json import to_json
from hmrnn.errors import InputError
from hmrnn.kinds.labels import report as labelled
from hmrnn.kinds.labels.corpus import LabelCorpus
from hmrnn.kinds.strokes.figures import writing
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import StrokeCorpus
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.kinds.text.evaluate import find
from hmrnn.kinds.text.gold import against_removed_spaces, against_white_space
from hmrnn.kinds.text.lines import split_lines
from hmrnn.kinds.text.model import TextModel
from hmrnn.nn.predictor import shown_sizes
from hmrnn.plots.curves import curves
from hmrnn.plots.lengths import timescales
from hmrnn.plots.style import styled, superscript
from hmrnn.pretrained.load import load
from hmrnn.reading.segment import segment_many
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTEXT, PASSAGE = 500, 270
"""Symbols read before the passage of figures 3 and 4, and the passage: three rows of 90, as in the paper."""
MEASURED = 20_000
"""Symbols of the validation part whose segments are counted and scored."""
LINES = 20
"""Lines of handwriting whose segments are counted."""
SAMPLES = ((0.5, 1), (0.8, 2), (1.0, 3))
"""Temperature and seed of the samples."""
COLUMNS = (
    "length: symbols per segment; prec.: share of the segment ends that are gold ends; recall: share of the gold ends "
    "that were found; F1: their harmonic mean; chance: F1 of as many ends drawn at random; R: 1 for perfect, lower if "
    "F1 was bought with too many ends; over: how many more ends than gold. Rows below the levels are simple rules to "
    "compare with. At tolerance 1 an end may be one symbol off."
)

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid #8886; border-radius: 4px; font-size: .85rem; }
pre.sample { white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; background: #fff; border-radius: 4px; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { font-size: .9rem; }
"""


def write(run: Path, metrics: Sequence[dict[str, Any]], data: Corpus | StrokeCorpus | LabelCorpus) -> Path:
    """Write report.html into the directory of a run, from its metrics, its best model and its validation part."""
    directory = RunDirectory(run)
    model = load(run)
    openings: dict[str, Any] = {"text": _opening, "strokes": _opening_strokes}
    bodies: dict[str, Any] = {"text": _text, "strokes": _strokes}
    parts = openings.get(model.reads.modality, labelled.opening)(model, data)
    parts += [_results(metrics, model, directory.newest_progress())]
    parts += [_picture("Training", curves(metrics), "The measure and the boundary rates over the updates.")]
    parts += bodies.get(model.reads.modality, labelled.examples)(model, data)
    config = html.escape(to_json(model.config).decode())
    parts.append(f"<h2>Config</h2><pre>{config}</pre>")
    title = html.escape(f"{run.resolve().name}: {data.name}")
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{''.join(parts)}</body></html>\n"
    )
    return files.write(run / "report.html", files.shown(page).encode(), advice="make room there and resume the run")


def _opening(model: TextModel, corpus: Corpus) -> list[str]:
    """One sentence on what was found, and the coloured segments of a passage."""
    if not model.network.rnn.num_boundaries:
        return [f"<p>{html.escape(model.config.model.rnn)} has no detectors, so it finds no segments.</p>"]
    found = passage(model, corpus)
    lengths = [len(found) / len(found.ends(level)) for level in range(1, found.levels + 1)]
    said = ", ".join(f"{length:.1f} symbols at level {level}" for level, length in enumerate(lengths, 1))
    parts = [
        f"<p>The network found these segments in a text that it was not trained on, without being shown a boundary: on "
        f"average {said}. Neighbouring segments differ in colour.</p>"
    ]
    for level in range(1, found.levels + 1):
        parts.append(f"<p>level {level}</p>{as_html(found.symbols, found.ends(level))}")
    return parts


def _opening_strokes(model: StrokeModel, corpus: StrokeCorpus) -> list[str]:
    return [
        f"<p>A network that reads pen movements, trained on {len(corpus.train):,} lines without being shown a "
        "boundary.</p>"
    ]


def _results(metrics: Sequence[dict[str, Any]], model: Any, progress: dict[str, Any]) -> str:
    valid = [line for line in metrics if line["event"] == "valid"]
    train = [line for line in metrics if line["event"] == "train"]
    if not valid:
        raise InputError("a report needs a run that has been validated at least once")
    reads = kind.of(model.config)
    unit, per = reads.measure(model.reads)
    best = min(valid, key=lambda line: line[unit])
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    rates = ", ".join(f"z{superscript(l)} {rate:.4f}" for l, rate in enumerate(best["rates"], start=1))
    updates = ", ".join(f"{share:.1%}" for share in best["updates"])
    rows = [
        (f"validation, {unit} per {per}", f"{best[unit]:.4f} at step {best['step']}, epoch {best['epoch']:.2f}"),
        *([(f"{reads.error} there", f"{best['error']:.1%}")] if "error" in best else []),
        ("last validation", f"{valid[-1][unit]:.4f} at step {valid[-1]['step']}"),
        ("boundary rates", rates or "no detectors"),
        ("share of the steps at which layer 1, 2, … changed", updates),
        ("updates saved against a stacked LSTM", f"{1 - sum(best['updates']) / len(best['updates']):.1%}"),
        (f"multiply-adds per {model.reads.unit}", f"{best['multiply_adds']:,.0f}"),
        ("network", f"{model.config.model.rnn}, layers of {shown_sizes(model.network.rnn.hidden_sizes)}"),
        ("parameters", f"{parameters:,}"),
    ]
    if train:
        speed = float(np.median([line["symbols_per_second"] for line in train]))
        rows.append(("training", f"{duration(progress.get('seconds', 0.0))}, {speed:,.0f} symbols per second"))
    rows.append(("end", str(progress.get("finished") or "not finished")))
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<h2>Results</h2><table>{cells}</table>"


def _text_lines(model: TextModel, corpus: Corpus) -> list[str]:
    """The longest of some validation lines, and lines that the model wrote."""
    parts, lines = [], split_lines(corpus)["valid"]
    if model.network.rnn.num_boundaries:
        found = passage(model, corpus)
        caption = "A line of the validation part; white blocks are boundaries."
        parts += [_picture("Figure 3", model.figure("3", found.text, found), caption)]
        parts += [f"<pre>{html.escape(found.table())}</pre>"]
    parts.append("<h2>Samples</h2>")
    for line in range(min(10, len(lines))):
        given = lines.conditions[line] if lines.conditions else None
        sample = model.generate("", 400, temperature=0.8, seed=line, condition=given)
        shown = "" if given is None else f"{given}: "
        parts.append(f'<pre class="sample">{html.escape(shown + sample)}</pre>')
    return parts


def _text(model: TextModel, corpus: Corpus) -> list[str]:
    if model.end is not None:
        return _text_lines(model, corpus)
    parts = []
    if model.network.rnn.num_boundaries:
        found = passage(model, corpus)
        for name, shown in (("3", "; white blocks are boundaries"), ("4", ", with the norm of every layer's state")):
            caption = f"{len(found)} symbols of the validation part{shown}."
            parts.append(_picture(f"Figure {name}", model.figure(name, found.text, found), caption))
        parts += [f"<pre>{html.escape(found.table())}</pre>", *_segments(model, corpus)]
    parts.append("<h2>Samples</h2>")
    for temperature, seed in SAMPLES:
        sample = model.generate("", 400, temperature=temperature, seed=seed)
        parts.append(f'<p>temperature {temperature}</p><pre class="sample">{html.escape(sample)}</pre>')
    return parts


def passage(model: TextModel, corpus: Corpus) -> Segmentation:
    """The segments of a passage of the validation part, found with its left context read first.

    Of a model of lines: the longest of some lines, under its condition.
    """
    if model.end is not None:
        lines = split_lines(corpus)["valid"]
        chosen = int(lines.lengths[:LINES].argmax())
        text = corpus.vocabulary.decode(lines.symbols[lines.starts[chosen] : lines.ends[chosen] - 1])
        return model.segment(text, condition=lines.conditions[chosen] if lines.conditions else None)
    symbols = corpus.valid[: CONTEXT + PASSAGE]
    start = max(0, min(CONTEXT, len(symbols) - PASSAGE))
    return segment_many(model.network, [symbols], [corpus.vocabulary.pieces(symbols)])[0][start:]


def _segments(model: TextModel, corpus: Corpus) -> list[str]:
    symbols = corpus.valid[:MEASURED]
    found = find(model.network, symbols, streams=16, warmup=200)
    edges = [np.r_[0, ends_of(level), len(symbols)] for level in found.boundaries.T]
    caption = f"Lengths of the segments in {len(symbols):,} symbols of the validation part; the median is marked."
    parts = [_picture("Timescales", timescales([np.diff(level) for level in edges]), caption)]
    pieces = corpus.vocabulary.pieces(np.unique(symbols))
    if corpus.spaces:
        rows = against_removed_spaces(found, symbols, corpus.spaces["valid"][: len(symbols)], corpus.vocabulary)
    elif any(map(str.isspace, pieces)) and not all(map(str.isspace, pieces)):
        rows = against_white_space(found, symbols, corpus.vocabulary)
    else:
        return parts
    where = " or ".join(dict.fromkeys(row.convention for row in rows))
    parts.append(f"<h2>Segment ends against spaces</h2><p>Gold ends are {html.escape(where)}. {COLUMNS}</p>")
    for tolerance in TOLERANCES:
        parts.append(f"<p>tolerance {tolerance}</p><pre>{html.escape(table(rows, tolerance))}</pre>")
    return parts


def _strokes(model: StrokeModel, corpus: StrokeCorpus) -> list[str]:
    parts, given = [], corpus.valid.conditions
    if model.network.rnn.num_boundaries:
        lines = [corpus.valid[k] for k in range(min(LINES, len(corpus.valid)))]
        found = [model.segment(line, condition=given[k] if given else None) for k, line in enumerate(lines)]
        levels = range(1, found[0].levels + 1)
        lengths = [np.concatenate([one.lengths(level) for one in found]) for level in levels]
        try:
            caption = "A line of the validation part, coloured by its pen strokes and by segments."
            parts.append(_picture("Figure 5", model.figure("5", lines[0], found[0]), caption))
        except InputError as error:  # a line of dots alone
            parts.append(f"<h2>Figure 5</h2><p>{html.escape(str(error))}</p>")
        caption = f"Lengths of the segments in {len(lines)} lines."
        parts.append(_picture("Timescales", timescales(lengths, unit="points"), caption))
    try:
        some = [given[k % len(given)] for k in range(len(SAMPLES))] if given else None
        written = writing(model.sheet(len(SAMPLES), 500, bias=0.5, seed=1, condition=some))
    except InputError as error:  # a model that cannot write yet
        return [*parts, f"<h2>Samples</h2><p>{html.escape(str(error))}</p>"]
    return [*parts, _picture("Samples", written, "Lines that the model wrote; bias 0.5.")]


def _picture(title: str, figure: Figure, caption: str) -> str:
    """A figure as an SVG image inside the page; ids inside an <img> cannot clash with those of other figures."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    source = base64.b64encode(buffer.getvalue()).decode()
    shown = html.escape(caption)
    return (
        f'<h2>{html.escape(title)}</h2><figure><img alt="{shown}" style="width: 100%" '
        f'src="data:image/svg+xml;base64,{source}"><figcaption>{shown}</figcaption></figure>'
    )
