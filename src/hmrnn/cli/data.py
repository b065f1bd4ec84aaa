"""``hmrnn data``: show what a corpus holds."""

from __future__ import annotations

import dataclasses

from hmrnn.cli import display
from hmrnn.cli.arguments import DataArguments
from hmrnn.cli.target import preset_for
from hmrnn.cli.terminal import say
from hmrnn.config import STROKE_FORMATS
from hmrnn.errors import InputError
from hmrnn.kinds.labels.load import load_labelled
from hmrnn.kinds.strokes.corpus import load_strokes, write_archive
from hmrnn.kinds.text.corpus import load_corpus


def run(arguments: DataArguments) -> int:
    wanted = preset_for(arguments.name)[1].data
    paths = arguments.path or (*wanted.path, *arguments.paths)
    wanted = dataclasses.replace(wanted, path=paths, split=arguments.split)
    progress = display.show_progress("reading")
    if arguments.archive and wanted.format not in STROKE_FORMATS:
        raise InputError("--archive is for pen strokes; other data are kept in their own files")
    if wanted.is_labelled:
        say(load_labelled(wanted, progress).describe())
    elif wanted.format in STROKE_FORMATS:
        if arguments.archive:
            lines = write_archive(wanted, arguments.archive, progress)
            say(f"wrote {arguments.archive}: {lines:,} lines")
        say(str(load_strokes(wanted, progress)))
    else:
        say(display.corpus_table(load_corpus(wanted, progress=progress)))
    return 0
