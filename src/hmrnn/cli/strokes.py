"""What the commands do with a model of handwriting."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from hmrnn.analysis import scores as boundary_scores
from hmrnn.analysis.gold import against_pen_ups, pen_ups
from hmrnn.cli import arguments as flags
from hmrnn.cli import display
from hmrnn.data import Strokes, load_strokes, read_strokes, save_strokes
from hmrnn.data.strokes.corpus import leave_out_short
from hmrnn.data.strokes.files import ENDINGS
from hmrnn.data.strokes.strokes import counted
from hmrnn.errors import InputError, refuse
from hmrnn.inference.evaluate_strokes import StrokeEvaluation, evaluate_strokes
from hmrnn.inference.sample_strokes import scribble
from hmrnn.plots.save import check_drawing_path, check_figure_path, save_drawing, save_figure
from hmrnn.plots.strokes import figure5
from hmrnn.pretrained.strokes import StrokeModel

POINTS = 600
"""Written if --length does not say how many."""
NOT_TEXT = "is for text, and this is a model of handwriting; leave it out"
LONGEST = 86_400
"""Seconds that a picture may take to write itself: a day."""


def evaluate(model: StrokeModel, arguments: flags.EvaluateArguments) -> int:
    of_text: dict[str, object] = {
        "--symbols": arguments.symbols, "--gold": arguments.gold, "--plain": arguments.plain,
        "--streams": arguments.streams is not None, "--warmup": arguments.warmup is not None,
        "--dynamic": arguments.dynamic,
    }  # fmt: skip
    refuse(of_text, NOT_TEXT)
    if arguments.file:
        parts, what = [read_strokes(path) for path in arguments.file], ", ".join(arguments.file)
        names = [name for part in parts for name in part.names]
        strokes, short = leave_out_short(Strokes.of([line for part in parts for line in part], names), what)
        if short:
            left_out = counted(len(short), "line")
            named = short[0] + (" and others" if len(short) > 1 else "")
            print(f"{left_out} of one point left out, as there is nothing to predict: {named}", file=sys.stderr)
    else:
        strokes, what = _own(model, arguments.split or "test", arguments.path)
    if arguments.boundaries and model.network.rnn.num_boundaries == 0:
        raise InputError("this model has no detectors, so there are no boundaries to score; leave out --boundaries")
    result = evaluate_strokes(model.network, strokes, model.scale, progress=display.show_progress("evaluating"))
    rows = _against_pen_ups(model, strokes) if arguments.boundaries else []
    if arguments.json:
        record = {"strokes": what, "per_point": result.per_point, "saved": result.saved}
        record |= {"boundaries": [row.to_dict() for row in rows]} if rows else {}
        print(msgspec.json.encode({**dataclasses.asdict(result), **record}).decode())
        return 0
    print(table(result, what))
    for tolerance in boundary_scores.TOLERANCES if rows else ():
        print(f"\nsegment ends {_near(tolerance)}:\n{boundary_scores.table(rows, tolerance)}")
    return 0


def _against_pen_ups(model: StrokeModel, strokes: Strokes) -> list[boundary_scores.Row]:
    """Every level's segment ends, and those of the baselines, against the ends of pen strokes."""
    lines = [strokes[k] for k in range(len(strokes))]
    found = [model.segment(line) for line in lines]
    ends = [[one.ends(level) for one in found] for level in range(1, found[0].levels + 1)]
    surprises = [np.asarray(one.bits) for one in found]
    gold: dict[str, Sequence[ArrayLike]] = {"where the pen was lifted": [pen_ups(line) for line in lines]}
    return boundary_scores.compare(ends, gold, [len(line) for line in lines], surprises)


def table(result: StrokeEvaluation, what: str) -> str:
    """Log-likelihood, and what each layer did."""
    lines = [
        f"{what}: {counted(result.sequences, 'line')}, {counted(result.points, 'point')} predicted",
        f"log-likelihood  {result.log_likelihood:.1f} nats per line  ({result.per_point:.4f} per point)",
    ]
    for l, share in enumerate(result.updates, start=1):
        rate = f", boundary rate {result.rates[l - 1]:.4f}" if l <= len(result.rates) else ""
        lines.append(f"layer {l}  updated at {share:.1%} of the steps{rate}")
    return "\n".join([*lines, f"updates saved  {result.saved:.1%}"])


def segment(model: StrokeModel, arguments: flags.SegmentArguments) -> int:
    if arguments.stream:
        raise InputError("--stream is for text, and this is a model of handwriting; name a file of strokes by --file")
    refuse({"--plain": arguments.plain, "--width": arguments.width}, NOT_TEXT)
    steps = _line(model, arguments, arguments.line)
    found = model.segment(steps)
    if arguments.json:
        print(found.to_json())
        return 0
    lines = [f"{counted(len(found), 'point')}, {counted(int(steps[:, 2].sum()), 'stroke')}"]
    for level, scores in against_pen_ups(found, steps).items():
        ends = found.ends(level)
        lines.append(f"level {level}: {counted(len(ends), 'segment')}, {len(found) / len(ends):.1f} points on average")
        lines += [f"  ends {_near(tolerance)}: {_agreement(score)}" for tolerance, score in scores.items()]
    print("\n".join([*lines, str(found.updates())]))
    return 0


def generate(model: StrokeModel, arguments: flags.GenerateArguments) -> int:
    of_text = {"a prompt": arguments.prompt, "--plain": arguments.plain}
    refuse(of_text | {"--top-k": arguments.top_k, "--top-p": arguments.top_p}, f"{NOT_TEXT} (--prime takes a line)")
    out = Path(arguments.out or "writing.svg")
    if arguments.prime and out.exists() and out.samefile(Path(arguments.prime).expanduser()):
        raise InputError(f"--out {out} is the file of --prime, which would be lost; choose another --out")
    if arguments.line is not None and arguments.prime is None:
        raise InputError("--line is for --prime: which of its lines to go on from; give both")
    if not 0 <= arguments.seconds <= LONGEST:
        raise InputError(f"--seconds must lie between 0 and {LONGEST}; got {arguments.seconds:g}")
    if arguments.seconds and out.suffix in ENDINGS:
        raise InputError(f"--seconds is for pictures, and {out} is to hold strokes; leave it out")
    if out.suffix not in ENDINGS:
        check_drawing_path(out, arguments.seconds, others=ENDINGS)
    prime = _chosen(read_strokes(arguments.prime), arguments.line) if arguments.prime else None
    lines = model.sheet(
        1 if arguments.samples is None else arguments.samples, POINTS if arguments.length is None else arguments.length,
        temperature=1.0 if arguments.temperature is None else arguments.temperature,
        bias=arguments.bias, prime=prime, seed=arguments.seed,
    )  # fmt: skip
    if out.suffix in ENDINGS:
        begin = np.array([[0, 0, 0 if prime is None else prime[-1, 2]]])  # the point that the first step leads from
        save_strokes(Strokes.of([np.concatenate([begin, line]) for line in lines]), out)
    else:
        save_drawing(lines, out, prime=prime, seconds=arguments.seconds)
    print(f"wrote {out}: {counted(len(lines), 'line')} of {counted(len(lines[0]), 'point')}")
    if warning := scribble(model.network, model.scale, lines):
        print(warning, file=sys.stderr)
    return 0


def plot(model: StrokeModel, arguments: flags.PlotArguments) -> int:
    if arguments.figure not in (None, "5"):
        raise InputError(f"--figure {arguments.figure} is for text, and this is a model of handwriting; use --figure 5")
    refuse({"--plain": arguments.plain}, NOT_TEXT)
    check_figure_path(arguments.out)
    steps = _line(model, arguments, arguments.line)
    found = model.segment(steps)
    levels = arguments.levels or range(1, found.levels + 1)
    save_figure(figure5(steps, found, levels=levels), arguments.out)
    print(f"wrote {arguments.out}")
    return 0


def _own(model: StrokeModel, split: str, path: tuple[str, ...]) -> tuple[Strokes, str]:
    """A part of the data that the model was trained by, and what to call it."""
    data = dataclasses.replace(model.config.data, path=path) if path else model.config.data
    corpus = load_strokes(data, display.show_progress("reading"))
    if not np.allclose(dataclasses.astuple(corpus.scale), dataclasses.astuple(model.scale), rtol=1e-9, atol=0):
        raise InputError(
            f"{corpus.name} has another scale than the model: lines, their names or their split are not those that it "
            "was trained on; evaluate others by --file"
        )
    return getattr(corpus, split), f"{corpus.name}, {split} part"


def _line(model: StrokeModel, arguments: flags.TextArguments, which: str | None) -> np.ndarray:
    if arguments.text is not None:
        raise InputError("this is a model of handwriting, and a text was given; name a file of strokes by --file")
    strokes = read_strokes(arguments.file) if arguments.file else _own(model, "valid", ())[0]
    return _chosen(strokes, which)


def _chosen(strokes: Strokes, which: str | None) -> np.ndarray:
    """A line by its name, or counted from 1; the first if nobody says."""
    if which is None:
        return strokes[0]
    if which not in strokes.names and which.isdecimal():
        if not 1 <= int(which) <= len(strokes):
            raise InputError(f"--line must lie between 1 and {len(strokes)}, or be the name of a line; got {which}")
        return strokes[int(which) - 1]
    return strokes[strokes.index(which)]


def _near(tolerance: int) -> str:
    return "exactly at pen-ups" if tolerance == 0 else f"within {tolerance} point of them"


def _agreement(score: boundary_scores.BoundaryScores) -> str:
    shares = {"precision": score.precision, "recall": score.recall, "F1": score.f1}
    return ", ".join(f"{name} {'none' if math.isnan(share) else f'{share:.3f}'}" for name, share in shares.items())
