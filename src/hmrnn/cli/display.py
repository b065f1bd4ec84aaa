"""What commands show: progress bars, tables and segments, on a terminal or plain when piped."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from hmrnn.analysis.scores import BoundaryScores
from hmrnn.analysis.segmentation import Segmentation
from hmrnn.cli import terminal
from hmrnn.kinds.strokes.gold import against_pen_ups
from hmrnn.kinds.strokes.strokes import counted
from hmrnn.kinds.text.corpus import Corpus

if TYPE_CHECKING:
    from rich.console import Console

    from hmrnn.kinds.strokes.evaluate import StrokeEvaluation
    from hmrnn.kinds.text.evaluate import Evaluation

LONG = 20_000
"""Symbols from which on a faster way to read a text is pointed out."""

FIRST, EVERY = 5.0, 60.0
"""Without a terminal: seconds until the first line of progress, and between two lines."""


def show_progress(what: str) -> Callable[[int, int], None]:
    """A function that shows the progress on stderr: a bar on a terminal, elsewhere a line now and then."""
    start: tuple[float, int] | None = None
    due = FIRST
    bar = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        nonlocal start, due
        now = monotonic()
        start = start or (now, done)  # a resumed job does not start at 0
        passed, share, left = now - start[0], done / max(total, 1), ""
        if passed > 2 and done > start[1]:
            left = f"  {duration((total - done) * passed / (done - start[1]))} left"
        if bar:
            terminal.show_bar(what, share, left)
        elif left and passed >= due and done < total:
            due = passed + EVERY
            print(f"{what} {100 * share:5.1f}%{left}", file=sys.stderr, flush=True)

    return show


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def reading_progress(what: str, symbols: int, faster: str) -> Callable[[int, int], None]:
    """As :func:`show_progress`; for a long text the command that is faster is printed first, on a terminal."""
    if symbols > LONG and sys.stderr.isatty():
        sys.stderr.write(
            f"{symbols:,} symbols, read one after the other; {faster} reads parts of a text side by side\n"
        )
    return show_progress(what)


def evaluation_table(result: Evaluation, what: str, how: str, unit: str = "character") -> str:
    """Bits per ``unit``, and what each layer did; ``how`` says in how many streams the text was read."""
    total, dense = sum(result.updates), len(result.updates)
    return "\n".join([
        f"{what}: {result.symbols:,} symbols predicted, {how}",
        f"bits per {unit}  {result.bits:.4f}",
        *_layers(result),
        f"updates saved  {result.saved:.1%}  (per 270 {unit}s: {270 * total:.0f} instead of {270 * dense})",
        f"multiply-adds per {unit}  {result.multiply_adds:,.0f}",
    ])  # fmt: skip


def stroke_evaluation_table(result: StrokeEvaluation, what: str) -> str:
    """Log-likelihood, and what each layer did."""
    return "\n".join([
        f"{what}: {counted(result.sequences, 'line')}, {counted(result.points, 'point')} predicted",
        f"log-likelihood  {result.log_likelihood:.1f} nats per line  ({result.per_point:.4f} per point)",
        *_layers(result),
        f"updates saved  {result.saved:.1%}",
        f"multiply-adds per point  {result.multiply_adds:,.0f}",
    ])  # fmt: skip


def _layers(result: Evaluation | StrokeEvaluation) -> list[str]:
    rates = [f", boundary rate {rate:.4f}" for rate in result.rates]
    rates += [""] * (len(result.updates) - len(rates))
    return [
        f"layer {l}  updated at {share:.1%} of the steps{rate}"
        for l, (share, rate) in enumerate(zip(result.updates, rates), start=1)
    ]


def corpus_table(corpus: Corpus) -> str:
    """What a corpus holds."""
    lines = [f"{corpus.name}: {len(corpus.vocabulary)} symbols ({corpus.vocabulary.kind})"]
    for name in ("train", "valid", "test"):
        part: np.ndarray = getattr(corpus, name)
        replaced = f", {corpus.replaced[name]} replaced by the unknown symbol" if corpus.replaced.get(name) else ""
        start = corpus.vocabulary.decode(part[:60])
        lines.append(f"{name:5} {len(part):>12,} symbols{replaced}, starts {start!r}")
    return "\n".join(lines)


def segmentation(result: Segmentation, width: int = 0) -> str:
    """Segments level by level, coloured on a terminal and set apart by bars when piped; then the update counts."""
    coloured = os.environ.get("FORCE_COLOR") or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")
    colour = bool(coloured) and not os.environ.get("NO_COLOR")
    shown = result.render(width=width or min(shutil.get_terminal_size().columns, 100), colour=colour)
    return f"{shown}\n{result.updates()}"


def stroke_segmentation(result: Segmentation, steps: np.ndarray) -> str:
    """Number and length of the segments of a line at every level, and how their ends agree with lifts of the pen."""
    lines = [f"{counted(len(result), 'point')}, {counted(int(steps[:, 2].sum()), 'stroke')}"]
    for level, scores in against_pen_ups(result, steps).items():
        count = len(result.ends(level))
        lines.append(f"level {level}: {counted(count, 'segment')}, {len(result) / count:.1f} points on average")
        lines += [f"  ends {near_pen_ups(tolerance)}: {_agreement(score)}" for tolerance, score in scores.items()]
    return "\n".join([*lines, str(result.updates())])


def near_pen_ups(tolerance: int) -> str:
    return "exactly at pen-ups" if tolerance == 0 else f"within {tolerance} point of pen-ups"


def _agreement(score: BoundaryScores) -> str:
    shares = {"precision": score.precision, "recall": score.recall, "F1": score.f1}
    return ", ".join(f"{name} {'none' if math.isnan(share) else f'{share:.3f}'}" for name, share in shares.items())


def print_table(
    title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], console: Console | None = None
) -> None:
    """A small table, the first column left, the others right."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console(highlight=False, markup=False)
    console.print(title, style="bold", soft_wrap=True)
    table = Table()
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
