"""report.html of a run: results, curves, figures, samples and config on one page without external files."""

from __future__ import annotations

import base64
import html
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn import kind
from hmrnn.analysis.sections import Section
from hmrnn.cli.display import duration, show_progress
from hmrnn.config.json import to_json
from hmrnn.nn.predictor import shown_sizes
from hmrnn.plots.charts import curves
from hmrnn.plots.style import styled, superscript
from hmrnn.pretrained.load import load
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
pre { padding: .8rem; border: 1px solid #8886; border-radius: 4px; font-size: .85rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; background: #fff; border-radius: 4px; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { font-size: .9rem; }
"""


def write(run: Path, metrics: Sequence[dict[str, Any]], corpus: Any) -> Path:
    """Write report.html into the directory of a run, from its metrics, its best model and its validation part."""
    model, drawn = load(run), curves(metrics)  # which refuses metrics without a line
    own = list(kind.of(model.config).commands(show_progress).report(model, corpus))
    opening = list(itertools.takewhile(lambda one: not one.title, own))
    sections = [
        *opening,
        _results(metrics, model, RunDirectory(run).newest_progress()),
        Section("Training", "The measure and the boundary rates over the updates.", figure=drawn),
        *own[len(opening) :],
        Section("Config", lines=to_json(model.config).decode()),
    ]
    title = html.escape(f"{run.resolve().name}: {corpus.name}")
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{''.join(map(_html, sections))}</body></html>\n"
    )
    return files.write(run / "report.html", files.shown(page).encode(), advice="make room there and resume the run")


def _html(section: Section) -> str:
    text, lines = html.escape(section.text), html.escape(section.lines)
    parts = [f"<h2>{html.escape(section.title)}</h2>"] if section.title else []
    if section.figure is not None:
        parts.append(_picture(section.figure, text))
    elif text:
        parts.append(f"<p>{text}</p>")
    parts += [] if section.found is None else [section.found._repr_html_()]
    parts += [f"<pre>{lines}</pre>"] if lines else []
    if section.table:
        header, *rows = section.table
        cells = "".join(_row("td", row) for row in rows)
        parts.append(f"<table>{_row('th', header) if any(header) else ''}{cells}</table>")
    return "".join(parts)


def _row(tag: str, row: Sequence[str]) -> str:
    first, *rest = map(html.escape, row)
    return f"<tr><th>{first}</th>{''.join(f'<{tag}>{cell}</{tag}>' for cell in rest)}</tr>"


def _results(metrics: Sequence[dict[str, Any]], model: Any, progress: dict[str, Any]) -> Section:
    valid = [line for line in metrics if line["event"] == "valid"]
    train = [line for line in metrics if line["event"] == "train"]
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
    return Section("Results", table=[("", ""), *rows])


def _picture(figure: Figure, caption: str) -> str:
    """A figure as an SVG image inside the page; ids inside an <img> cannot clash with those of other figures."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    source = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><img alt="{caption}" style="width: 100%" '
        f'src="data:image/svg+xml;base64,{source}"><figcaption>{caption}</figcaption></figure>'
    )
