"""``hmrnn score``: bits per character of a text, or of each of its lines."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable

import msgspec

from hmrnn.cli import display, inputs
from hmrnn.cli.arguments import ScoreArguments
from hmrnn.cli.terminal import say
from hmrnn.errors import InputError
from hmrnn.kinds.text.model import TextModel
from hmrnn.pretrained.load import load
from hmrnn.utils.devices import choose_device
from hmrnn.utils.files import shown


def run(arguments: ScoreArguments) -> int:
    model = load(arguments.model, device=choose_device(arguments.device))
    if not isinstance(model, TextModel):
        raise InputError(f"{arguments.model} is no model of text; use hmrnn evaluate")
    if arguments.lines:
        _score_lines(model, inputs.read_lines(arguments, model.vocabulary.kind), arguments)
        return 0
    text = inputs.read_text(arguments, model.vocabulary.kind)
    show = display.reading_progress("scoring", len(text), "hmrnn evaluate --file FILE")
    result = model.score(text, unknown=arguments.unknown, condition=arguments.condition, progress=show)
    if arguments.json:
        print(msgspec.json.encode({**dataclasses.asdict(result), "saved": result.saved}).decode())
    else:
        unit, total = model.vocabulary.unit, result.bits * result.symbols
        print(f"{result.bits:.4f} bits per {unit}  ({result.symbols:,} predicted, {total:,.0f} bits in all)")
    return 0


def _score_lines(model: TextModel, lines: Iterable[str], arguments: ScoreArguments) -> None:
    lines, read = itertools.tee(lines)
    scored = model.score_lines(read, unknown=arguments.unknown, condition=arguments.condition)
    for line, found in zip(lines, scored):
        text, bits = shown(line), found.bits if found else None
        if arguments.json:
            record = {"text": text, "symbols": found.symbols if found else 0, "bits": bits}
            print(msgspec.json.encode(record).decode())
        else:
            say(f"{'-' if bits is None else f'{bits:.4f}'}\t{text}")
        sys.stdout.flush()  # the next line of standard input may be long in coming
