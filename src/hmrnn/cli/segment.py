"""``hmrnn segment``: the segments of a text or of a line of handwriting; of files of any size with --stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from hmrnn.cli import display, inputs
from hmrnn.cli.arguments import SegmentArguments
from hmrnn.cli.terminal import say
from hmrnn.kinds.text.model import TextModel


def run(arguments: SegmentArguments) -> int:
    model = inputs.open_model(arguments)
    if arguments.stream:
        return _stream(model, arguments)
    given = inputs.read(model, arguments)
    show = display.reading_progress("segmenting", len(given), "hmrnn segment --stream FILE --out FOLDER")
    how = {"by": arguments.by} if arguments.by else {}
    found = model.segment(given, progress=show, **inputs.how_to_read(model, arguments), **how)
    if arguments.json:
        print(found.to_json())
    elif arguments.lexicon:
        say("\n".join(f"{count}\t{word}" for word, count in found.lexicon()))
    elif arguments.format != "levels":
        say(found.spaced() if arguments.format == "spaced" else "\n".join(found.words()))
    elif model.reads.modality == "text":
        print(display.segmentation(found, arguments.width))
    else:
        print(display.stroke_segmentation(found, given))
    return 0


def _stream(model: TextModel, arguments: SegmentArguments) -> int:
    from hmrnn.kinds.text.large_files import segment_files

    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    given = {"streams": arguments.streams, "warmup": arguments.warmup}
    written = segment_files(
        model, arguments.stream, Path(cast(str, arguments.out)), unknown=arguments.unknown, share=(rank, world),
        progress=display.show_progress("segmenting") if rank == 0 else None,
        **{name: n for name, n in given.items() if n is not None},
    )  # fmt: skip
    for target in written:
        say(f"wrote {target}")
    return 0
