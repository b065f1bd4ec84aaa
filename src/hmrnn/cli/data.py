"""``hmrnn data``: show what a corpus holds, or make text from a Wikipedia dump."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from hmrnn.cli import display
from hmrnn.cli.arguments import DataArguments
from hmrnn.cli.target import preset_for
from hmrnn.cli.terminal import say
from hmrnn.config import STROKE_FORMATS
from hmrnn.data import load_corpus, load_strokes, write_archive
from hmrnn.data.labels.load import load_labelled
from hmrnn.data.text.wikipedia import clean_wikipedia, wikipedia_prose
from hmrnn.errors import InputError


def run(arguments: DataArguments) -> int:
    if arguments.text8_from is not None or arguments.prose_from is not None:
        return _from_dump(arguments)
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


def _from_dump(arguments: DataArguments) -> int:
    began, progress = time.monotonic(), display.show_progress("cleaning")
    if arguments.text8_from is not None:
        dump, out = Path(arguments.text8_from), arguments.out or "text8"
        count = clean_wikipedia(dump, out, characters=arguments.characters or None, progress=progress)
    else:
        out = arguments.out or "prose.txt"
        count = wikipedia_prose(str(arguments.prose_from), out, progress=progress)
    say(f"wrote {out}: {count:,} characters in {time.monotonic() - began:.0f} s")
    return 0
