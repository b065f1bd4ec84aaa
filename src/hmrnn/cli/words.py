"""``hmrnn words``: train on a text that marks no words, then write the text with its words apart, and the lexicon."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from hmrnn import kind
from hmrnn.cli.arguments import WordsArguments
from hmrnn.cli.display import print_table, show_progress
from hmrnn.cli.train import run_to_end
from hmrnn.config import Config
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError
from hmrnn.pretrained.load import load
from hmrnn.training.rundir import RunDirectory
from hmrnn.utils.files import write

SHOWN = 20
"""Words of the lexicon that are printed."""


def run(arguments: WordsArguments) -> int:
    folder = Path(arguments.out or f"runs/{Path(arguments.file).name.split('.')[0]}-words")
    if arguments.model is None and (status := _train(arguments, folder)) != 0:
        return status
    model = load(arguments.model or folder)
    commands = kind.of(model.config).commands(show_progress)
    if not hasattr(commands, "words"):
        raise InputError(f"{arguments.model} is no model of text; leave -m out to train one", setting="model")
    found = commands.words(model, arguments)
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


def _train(arguments: WordsArguments, folder: Path) -> int:
    """Train, resume an interrupted run, or find it finished; exit status."""
    directory = RunDirectory(folder)
    again = f"hmrnn words {shlex.quote(arguments.file)} --out {shlex.quote(str(folder))}"
    config = replaced(Config.load("words"), {"data.path": (arguments.file,)})
    how: dict[str, Any] = {"again": again, "report": False}
    if not directory.holds_run or arguments.fresh:
        return run_to_end(config, directory, overwrite=arguments.fresh, **how)
    if directory.config().data != config.data:
        raise InputError(f"{folder} holds another run; choose another --out, or give --fresh", setting="out")
    if directory.newest_progress().get("finished"):
        print(f"{folder} holds a model of this text, which is used ({again} --fresh trains again)")
        return 0
    return run_to_end(directory.config(), directory, resume=True, **how)
