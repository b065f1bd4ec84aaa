"""``hmrnn evaluate`` of text: bits of a model as trained, or of weights that follow the text; scores of boundaries."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np

from hmrnn.analysis import gold as evaluate_boundaries
from hmrnn.analysis import scores as boundary_scores
from hmrnn.cli import arguments as flags
from hmrnn.cli import display, given_text
from hmrnn.cli import strokes as commands_strokes
from hmrnn.data import load_corpus, read_symbols_and_spaces
from hmrnn.errors import InputError, own_flags
from hmrnn.inference.dynamic import Dynamic, evaluate_dynamic
from hmrnn.inference.evaluate import cut, find
from hmrnn.inference.evaluate import evaluate as measure
from hmrnn.pretrained.load import TextModel, load
from hmrnn.pretrained.strokes import StrokeModel
from hmrnn.utils.devices import choose_device

STREAMS, WARMUP = 64, 500
"""How a text is read if nobody says: so many parts side by side, each after so many symbols of left context."""


@own_flags(path="--path")
def evaluate(arguments: flags.EvaluateArguments) -> int:
    dynamic = _dynamic(arguments)
    model = load(arguments.model, device=choose_device(arguments.device))
    if isinstance(model, StrokeModel):
        return commands_strokes.evaluate(model, arguments)
    symbols, spaces, what = _symbols(model, arguments)
    symbols, spaces = (part[: arguments.symbols or None] for part in (symbols, spaces))
    if dynamic is not None:
        return _evaluate_dynamically(model, symbols, what, dynamic, arguments.json)
    gold = evaluate_boundaries.read_ends(arguments.gold, len(symbols)) if arguments.gold else None
    streams = STREAMS if arguments.streams is None else arguments.streams
    warmup = WARMUP if arguments.warmup is None else arguments.warmup
    streams, warmup = cut(max(1, len(symbols) - 1), streams, warmup)
    show = display.show_progress("evaluating")
    result = measure(model.network, symbols, streams=streams, warmup=warmup, progress=show)
    rows = _boundary_rows(model, symbols, spaces, gold, streams, warmup) if arguments.boundaries else []
    if arguments.json:
        record: dict[str, Any] = {"text": what, "streams": streams, "warmup": warmup}
        record |= {"saved": result.saved} | ({"boundaries": [row.to_dict() for row in rows]} if rows else {})
        print(msgspec.json.encode({**dataclasses.asdict(result), **record}).decode())
        return 0
    how = f"{streams} streams, each but the first after {warmup} symbols of warm-up" if streams > 1 else "one stream"
    print(display.evaluation_table(result, what, how, model.vocabulary.unit))
    for tolerance in boundary_scores.TOLERANCES if rows else ():
        where = " or ".join(dict.fromkeys(row.convention for row in rows))
        print(f"\nsegment ends against {rows[0].scores[0].gold:,} gold ends ({where}), tolerance {tolerance}")
        print(boundary_scores.table(rows, tolerance))
    return 0


def _dynamic(arguments: flags.EvaluateArguments) -> Dynamic | None:
    """How the weights are to follow the text, if they are."""
    names = ("learning_rate", "decay", "segment_length")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not arguments.dynamic:
        if given:
            raise InputError(f"--{next(iter(given)).replace('_', '-')} is for --dynamic; give both")
        return None
    if arguments.boundaries:
        raise InputError("--dynamic is about bits, and --boundaries about the model as trained; one of them at a time")
    if arguments.streams not in (None, 1):
        raise InputError(f"--dynamic reads a text from end to end, in one stream; got --streams {arguments.streams}")
    if arguments.warmup is not None:
        raise InputError("--dynamic reads a text from end to end, with nothing to warm up; leave out --warmup")
    dynamic = Dynamic(**given)
    dynamic.check()
    return dynamic


def _evaluate_dynamically(model: TextModel, symbols: np.ndarray, what: str, dynamic: Dynamic, as_json: bool) -> int:
    result = evaluate_dynamic(model.network, symbols, dynamic, progress=display.show_progress("evaluating"))
    if as_json:
        record = {"text": what, "streams": 1, "dynamic": dataclasses.asdict(dynamic), "saved": result.saved}
        print(msgspec.json.encode({**dataclasses.asdict(result), **record}).decode())
        return 0
    settings = f"learning rate {dynamic.learning_rate:g}, decay {dynamic.decay:g}, segments of {dynamic.segment_length}"
    table = display.evaluation_table(result, what, "one stream", model.vocabulary.unit)
    print(f"dynamic evaluation: {settings}\n{table}")
    if result.skipped:
        print(f"segments not learned from, as their gradient was not finite  {result.skipped}")
    return 0


def _boundary_rows(
    model: TextModel, symbols: np.ndarray, spaces: np.ndarray, gold: np.ndarray | None, streams: int, warmup: int
) -> list[boundary_scores.Row]:
    show = display.show_progress("looking for segments")
    found = find(model.network, symbols, streams=streams, warmup=warmup, progress=show)
    if gold is not None:
        return evaluate_boundaries.against_ends(found, gold)
    if model.config.data.remove_spaces:
        return evaluate_boundaries.against_removed_spaces(found, symbols, spaces, model.vocabulary)
    return evaluate_boundaries.against_white_space(found, symbols, model.vocabulary)


def _symbols(model: TextModel, arguments: flags.EvaluateArguments) -> tuple[np.ndarray, np.ndarray, str]:
    """The text to evaluate as symbols of the model's vocabulary, where spaces were removed, and what to call it."""
    data = model.config.data
    if arguments.file:
        for path in arguments.file:
            given_text.check_no_strokes(path)
        progress = display.show_progress("reading")
        with own_flags(path="--file"):
            symbols, spaces = read_symbols_and_spaces(
                arguments.file, model.vocabulary, data, progress, plain=arguments.plain
            )
        return symbols, spaces, ", ".join(arguments.file)
    data = dataclasses.replace(data, path=arguments.path) if arguments.path else data
    corpus = load_corpus(data, progress=display.show_progress("reading"))
    if corpus.vocabulary != model.vocabulary:
        raise InputError(
            f"the corpus has another vocabulary ({len(corpus.vocabulary)} symbols) than the model "
            f"({len(model.vocabulary)}): it is not the text the model was trained on; evaluate another text by --file"
        )
    part = arguments.split or "test"
    symbols = getattr(corpus, part)
    spaces = corpus.spaces.get(part, np.zeros(len(symbols), np.uint8))
    return symbols, spaces, f"{corpus.name}, {part} part"
