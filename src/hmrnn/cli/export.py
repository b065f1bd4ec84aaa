"""``hmrnn export``: write a model to a directory of its own."""

from __future__ import annotations

from hmrnn.cli import models
from hmrnn.cli.arguments import ExportArguments
from hmrnn.cli.terminal import say
from hmrnn.pretrained.export import CARD, export
from hmrnn.pretrained.load import locate
from hmrnn.pretrained.onnx import write_step


def run(arguments: ExportArguments) -> int:
    if arguments.own():
        models.run("export", arguments)
    if arguments.onnx is not None:
        path = write_step(arguments.model, arguments.onnx)
        say(f"wrote {path}: {path.stat().st_size:,} bytes")
    return 0 if arguments.out is None else _export(arguments, arguments.out)


def _export(arguments: ExportArguments, path: str) -> int:
    out = export(arguments.model, path, half=arguments.half)
    size = sum(path.stat().st_size for path in out.iterdir())
    own = (locate(arguments.model) / CARD).is_file()
    card = f"its card is that of {arguments.model}" if own else f"its card, {out / CARD}, is yours to complete"
    say(f"wrote {out}: {size:,} bytes; {card}")
    return 0
