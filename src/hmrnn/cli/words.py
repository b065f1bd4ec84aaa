"""``hmrnn words``: train on a text that marks no words, then write the text with its words apart, and the lexicon."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from hmrnn.cli.arguments import WordsArguments, usual
from hmrnn.cli.display import print_table
from hmrnn.cli.models import opened
from hmrnn.cli.train import run_or_use
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils.files import write

SHOWN = 20
"""Words of the lexicon that are printed."""


def run(arguments: WordsArguments) -> int:
    folder = Path(arguments.out or f"runs/{Path(arguments.file).name.split('.')[0]}-words")
    if arguments.model is None:
        known = {"segments.known": arguments.lexicon, "segments.examples": arguments.segmented}
        config = replaced(Config.load(usual().trains["words"]), {"data.path": (arguments.file,), **known})
        flags = {"--lexicon": arguments.lexicon, "--segmented": arguments.segmented, "--out": str(folder)}
        given = [word for flag, value in flags.items() if value is not None for word in (flag, value)]
        again = shlex.join(["hmrnn", "words", arguments.file, *given])
        status = run_or_use(config, RunDirectory(folder), again, arguments.fresh, report=False)
        if status != 0:
            return status
    model, find = opened("words", dataclasses.replace(arguments, model=str(arguments.model or folder)))
    found = find(model, arguments)
    entries = found.lexicon()
    folder.mkdir(parents=True, exist_ok=True)
    lexicon = "".join(f"{count}\t{word}\n" for word, count in entries)
    write(folder / "words.txt", f"{found.spaced()}\n".encode())
    write(folder / "lexicon.tsv", lexicon.encode())
    total = sum(count for _, count in entries)
    title = f"{total:,} words, {len(entries):,} different; the most frequent"
    print_table(title, ("word", "count"), [(word, f"{count:,}") for word, count in entries[:SHOWN]])
    print(f"{folder / 'words.txt'}: the text with spaces between its words; {folder / 'lexicon.tsv'}: all of them")
    return 0
