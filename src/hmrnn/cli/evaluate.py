"""``hmrnn evaluate``: bits of text or log-likelihood of handwriting, and scores of the segment ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from hmrnn.analysis import scores
from hmrnn.analysis.gold import against_ends, read_ends
from hmrnn.cli import display, inputs
from hmrnn.cli.arguments import EvaluateArguments
from hmrnn.cli.terminal import say, warn
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.corpus import leave_out_short
from hmrnn.kinds.strokes.evaluate import evaluate_strokes
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.kinds.strokes.gold import pen_ups
from hmrnn.kinds.strokes.model import StrokeModel
from hmrnn.kinds.strokes.strokes import Strokes, counted
from hmrnn.kinds.text.corpus import read_symbols_and_spaces
from hmrnn.kinds.text.dynamic import Dynamic, evaluate_dynamic
from hmrnn.kinds.text.evaluate import cut, evaluate_lines, find
from hmrnn.kinds.text.evaluate import evaluate as evaluate_text
from hmrnn.kinds.text.gold import against_removed_spaces, against_white_space
from hmrnn.kinds.text.lines import all_lines, end_symbol, split_lines
from hmrnn.kinds.text.model import TextModel
from hmrnn.utils.files import shown


def run(arguments: EvaluateArguments) -> int:
    model = inputs.open_model(arguments)
    if arguments.boundaries and model.network.rnn.num_boundaries == 0:
        raise InputError("this model has no detectors, so there are no boundaries to score; leave out --boundaries")
    evaluate: Any = {"text": _text, "strokes": _strokes}[model.reads.modality]
    evaluate(model, arguments)
    return 0


def _text(model: TextModel, arguments: EvaluateArguments) -> None:
    if model.end is not None and not (arguments.file and (arguments.boundaries or arguments.dynamic)):
        _text_lines(model, arguments)
        return
    if model.config.model.time != "none":
        name = "dynamic" if arguments.dynamic else "boundaries"
        raise InputError(f"--{name} reads a text in streams, and this model is told the time of lines; leave it out")
    symbols, spaces, what = _symbols(model, arguments)
    symbols, spaces = (part[: arguments.symbols or None] for part in (symbols, spaces))
    if arguments.dynamic:
        _dynamic(model, symbols, what, arguments)
        return
    ends = read_ends(arguments.gold, len(symbols)) if arguments.gold else None
    streams, warmup = cut(
        max(1, len(symbols) - 1),
        64 if arguments.streams is None else arguments.streams,
        500 if arguments.warmup is None else arguments.warmup,
    )
    show = display.show_progress("evaluating")
    result = evaluate_text(model.network, symbols, streams=streams, warmup=warmup, progress=show).checked()
    rows = _text_rows(model, symbols, spaces, ends, streams, warmup) if arguments.boundaries else []
    unknown = _unknown(model, symbols)
    if arguments.json:
        _print_json(result, rows, text=what, streams=streams, warmup=warmup, unknown=unknown)
        return
    how = f"{streams} streams, each but the first after {warmup} symbols of warm-up" if streams > 1 else "one stream"
    say(display.evaluation_table(result, what, how, model.vocabulary.unit))
    _say_unknown(unknown, len(symbols))
    for tolerance in scores.TOLERANCES if rows else ():
        where = " or ".join(dict.fromkeys(row.convention for row in rows))
        say(f"\nsegment ends against {rows[0].scores[0].gold:,} gold ends ({where}), tolerance {tolerance}")
        say(scores.table(rows, tolerance))


def _text_lines(model: TextModel, arguments: EvaluateArguments) -> None:
    """Evaluate a model that was trained on lines, each read by itself, on the lines of its corpus or of files."""
    for name in ("boundaries", "dynamic", "streams", "warmup", "symbols"):
        if getattr(arguments, name):
            raise InputError(f"--{name} is for a text read in streams, and this model reads lines; leave it out")
    end = end_symbol(model.vocabulary)
    if arguments.file:
        if model.config.model.conditioned and arguments.condition is None:
            raise InputError("this model was trained with a condition; give --condition")
        symbols, _, what = _symbols(model, arguments)
        lines = all_lines(symbols, end, arguments.condition)
    else:
        corpus, part = model.corpus(arguments.path, display.show_progress("reading")), arguments.split or "test"
        lines, what = split_lines(corpus)[part], f"{corpus.name}, {part} part"
    show = display.show_progress("evaluating")
    result = evaluate_lines(model.network, lines, end, progress=show).checked()
    if arguments.json:
        _print_json(result, [], text=what, lines=len(lines))
        return
    say(display.evaluation_table(result, what, f"{len(lines):,} lines, each by itself", model.vocabulary.unit))


def _symbols(model: TextModel, arguments: EvaluateArguments) -> tuple[np.ndarray, np.ndarray, str]:
    """The text to evaluate as symbols of the model, where spaces were removed from it, and its name."""
    show = display.show_progress("reading")
    if arguments.file:
        for path in arguments.file:
            inputs.check_no_strokes(path)
        symbols, spaces = read_symbols_and_spaces(
            arguments.file, model.vocabulary, model.config.data, show, plain=arguments.plain
        )
        return symbols, spaces, ", ".join(arguments.file)
    corpus, part = model.corpus(arguments.path, show), arguments.split or "test"
    symbols = getattr(corpus, part)
    return symbols, corpus.spaces.get(part, np.zeros(len(symbols), np.uint8)), f"{corpus.name}, {part} part"


def _unknown(model: TextModel, symbols: np.ndarray) -> int:
    """The number of symbols that are read and predicted as the unknown symbol."""
    return int(np.count_nonzero(symbols == len(model.vocabulary.symbols)))


def _say_unknown(count: int, total: int) -> None:
    if count:
        say(f"read and predicted as the unknown symbol  {count:,} of {total:,} symbols ({count / total:.2%})")


def _dynamic(model: TextModel, symbols: np.ndarray, what: str, arguments: EvaluateArguments) -> None:
    names = ("learning_rate", "decay", "segment_length")
    how = Dynamic(**{name: value for name in names if (value := getattr(arguments, name)) is not None})
    how.check()
    result = evaluate_dynamic(model.network, symbols, how, progress=display.show_progress("evaluating")).checked()
    if arguments.json:
        _print_json(result, [], text=what, streams=1, dynamic=dataclasses.asdict(how), unknown=_unknown(model, symbols))
        return
    say(
        f"dynamic evaluation: learning rate {how.learning_rate:g}, decay {how.decay:g}, "
        f"segments of {how.segment_length}"
    )
    say(display.evaluation_table(result, what, "one stream", model.vocabulary.unit))
    _say_unknown(_unknown(model, symbols), len(symbols))
    if result.skipped:
        say(f"segments skipped, as their gradient was not finite  {result.skipped}")


def _text_rows(
    model: TextModel, symbols: np.ndarray, spaces: np.ndarray, ends: np.ndarray | None, streams: int, warmup: int
) -> list[scores.Row]:
    show = display.show_progress("looking for segments")
    found = find(model.network, symbols, streams=streams, warmup=warmup, progress=show)
    if ends is not None:
        return against_ends(found, ends)
    if model.config.data.remove_spaces:
        return against_removed_spaces(found, symbols, spaces, model.vocabulary)
    return against_white_space(found, symbols, model.vocabulary)


def _strokes(model: StrokeModel, arguments: EvaluateArguments) -> None:
    if arguments.file:
        strokes, what = _lines(arguments.file), ", ".join(arguments.file)
    else:
        corpus, part = model.corpus(arguments.path, display.show_progress("reading")), arguments.split or "test"
        strokes, what = getattr(corpus, part), f"{corpus.name}, {part} part"
    show = display.show_progress("evaluating")
    result = evaluate_strokes(model.network, strokes, model.scale, progress=show).checked()
    rows = _stroke_rows(model, strokes) if arguments.boundaries else []
    if arguments.json:
        _print_json(result, rows, strokes=what, per_point=result.per_point)
        return
    say(display.stroke_evaluation_table(result, what))
    for tolerance in scores.TOLERANCES if rows else ():
        say(f"\nsegment ends {display.near_pen_ups(tolerance)}:\n{scores.table(rows, tolerance)}")


def _lines(paths: Sequence[str]) -> Strokes:
    """The lines of all files, without those of one point."""
    parts = [read_strokes(path) for path in paths]
    names = [name for part in parts for name in part.names]
    strokes, short = leave_out_short(Strokes.of([line for part in parts for line in part], names), ", ".join(paths))
    if short:
        named = short[0] + (" and others" if len(short) > 1 else "")
        warn(f"{counted(len(short), 'line')} of one point left out, with nothing to predict: {named}")
    return strokes


def _stroke_rows(model: StrokeModel, strokes: Strokes) -> list[scores.Row]:
    """The segment ends of every level, and those of the baselines, against the ends of pen strokes."""
    lines = list(strokes)
    found = [model.segment(line) for line in lines]
    ends = [[one.ends(level) for one in found] for level in range(1, found[0].levels + 1)]
    surprises = [np.asarray(one.bits) for one in found]
    lifted: dict[str, Sequence[ArrayLike]] = {"where the pen was lifted": [pen_ups(line) for line in lines]}
    return scores.compare(ends, lifted, [len(line) for line in lines], surprises)


def _print_json(result: Any, rows: list[scores.Row], **more: Any) -> None:
    record = {**dataclasses.asdict(result), "saved": result.saved, **more}
    if rows:
        record["boundaries"] = [row.to_dict() for row in rows]
    plain = {name: shown(value) if isinstance(value, str) else value for name, value in record.items()}
    say(msgspec.json.encode(plain).decode())
