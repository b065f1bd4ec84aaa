"""``hmrnn generate``: continue a prompt, or write lines of handwriting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hmrnn.cli import inputs
from hmrnn.cli.arguments import GenerateArguments
from hmrnn.cli.display import show_progress
from hmrnn.cli.terminal import for_output, say
from hmrnn.errors import InputError
from hmrnn.kinds.strokes.drawing import check_drawing_path, save_drawing
from hmrnn.kinds.strokes.files import ENDINGS, read_strokes, save_strokes
from hmrnn.kinds.strokes.strokes import Strokes, counted
from hmrnn.kinds.strokes.write import scribble
from hmrnn.reading.sample import check_room

if TYPE_CHECKING:
    from hmrnn.kinds.strokes.model import StrokeModel
    from hmrnn.kinds.text.model import TextModel

LONGEST = 86_400
"""Seconds of the longest animation: a day."""


def run(arguments: GenerateArguments) -> int:
    model = inputs.open_model(arguments)
    generate: Any = {"text": _text, "strokes": _strokes}[model.reads.modality]
    generate(model, arguments)
    return 0


def _text(model: TextModel, arguments: GenerateArguments) -> None:
    length = 500 if arguments.length is None else arguments.length
    how: dict[str, Any] = {
        "temperature": 0.8 if arguments.temperature is None else arguments.temperature,
        **{name: getattr(arguments, name) for name in ("top_k", "top_p", "seed", "unknown")},
    }
    if arguments.samples is not None:
        check_room(model.network, arguments.samples, length)
        show = show_progress("writing")
        texts = model.generate([arguments.prompt] * arguments.samples, length, progress=show, **how)
        for number, text in enumerate(texts, start=1):
            say(f"--- sample {number} of {len(texts)} ---\n{arguments.prompt}{text}")
        return
    pieces = model.stream(arguments.prompt, length, **how)
    sys.stdout.write(for_output(arguments.prompt))
    for piece in pieces:
        sys.stdout.write(for_output(piece))
        sys.stdout.flush()
    sys.stdout.write("\n")


def _strokes(model: StrokeModel, arguments: GenerateArguments) -> None:
    out = Path(arguments.out or "writing.svg")
    as_strokes = out.suffix in ENDINGS
    if arguments.prime and out.exists() and out.samefile(Path(arguments.prime).expanduser()):
        raise InputError(f"--out {out} is the file of --prime, which would be lost; choose another --out")
    if not 0 <= arguments.seconds <= LONGEST:
        raise InputError(f"--seconds must lie between 0 and {LONGEST}; got {arguments.seconds:g}")
    if arguments.seconds and as_strokes:
        raise InputError(f"--seconds is for pictures, and {out} is to hold strokes; leave it out")
    if not as_strokes:
        check_drawing_path(out, arguments.seconds, others=ENDINGS)
    prime = inputs.choose_line(read_strokes(arguments.prime), arguments.line) if arguments.prime else None
    lines = model.sheet(
        1 if arguments.samples is None else arguments.samples,
        600 if arguments.length is None else arguments.length,
        temperature=1.0 if arguments.temperature is None else arguments.temperature,
        bias=arguments.bias, prime=prime, seed=arguments.seed, progress=show_progress("writing"),
    )  # fmt: skip
    if as_strokes:
        begin = np.array([[0, 0, 0 if prime is None else prime[-1, 2]]])  # the point where the first step starts
        save_strokes(Strokes.of([np.concatenate([begin, line]) for line in lines]), out)
    else:
        save_drawing(lines, out, prime=prime, seconds=arguments.seconds)
    lengths = sorted({len(line) for line in lines})
    shown = counted(lengths[0], "point") if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]} points"
    say(f"wrote {out}: {counted(len(lines), 'line')} of {shown}")
    if warning := scribble(model.network, model.scale, lines):
        print(warning, file=sys.stderr)
