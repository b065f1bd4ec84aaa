"""The entry point ``hmrnn``: command name -> arguments -> command. Torch is imported only when a command runs."""

from __future__ import annotations

import atexit
import dataclasses
import errno
import gc
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hmrnn import __version__
from hmrnn.cli.arguments import ARGUMENTS, arguments_of
from hmrnn.cli.parse import parse
from hmrnn.cli.settings import train_arguments
from hmrnn.cli.terminal import warn
from hmrnn.errors import InputError, Note, did_you_mean
from hmrnn.pretrained import bundled
from hmrnn.utils.signals import discard_stdout

HELP = f"""\
usage: hmrnn COMMAND [OPTIONS]     (hmrnn COMMAND --help has examples and the options)

With a model that comes with hmrnn, or by -m with one of yours:
  segment    show the segments of a text at every level
  generate   continue a prompt, or write by hand
  score      bits per character of a text, or of each of its lines
  plot       the paper's figures 3, 4 and 5, timescales, and training curves
  explore    a page in the browser: segments as you type, and text as it is written

With data of yours:
  data       show what a file or a corpus holds
  train      train on a text, on pen strokes, on labels, tags, pairs, numbers or series, or as in the paper
  words      find the words of a text that marks none: train, segment, count
  evaluate   bits per character, or log-likelihood of handwriting, with what the layers did
  predict    answer sequences with a model of labels, tags, pairs or numbers; forecast; read handwriting
  export     write a model to a directory of its own, in half precision if wanted

Without either:
  demo       train on a built-in text and show what the model found
  bench      speed beside torch.nn.LSTM on this machine
  doctor     versions, engine, threads, GPU and extras, and what is missing
  shell      completion for bash, zsh or fish, and the man page

First steps:
  hmrnn segment "When the boats came back in the evening, the whole town was waiting on the pier."
  hmrnn train book.txt
  hmrnn segment -m runs/book "It was the best of times."

Models that come with hmrnn: {", ".join(bundled.names())}; {bundled.DEFAULT} is used where -m is not given.
hmrnn --version prints the version.
"""

OF_MODELS = ("evaluate", "score", "segment", "generate", "predict")
"""The commands that are what a kind of data makes of them."""
NO_MEMORY = re.compile(
    r"can't allocate memory|out of memory|not enough memory|size calculation overflowed|[Nn]umel.*overflow"
)
"""What torch says when it cannot have the memory that it needs."""
SYSTEM_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
}  # fmt: skip
"""Errors of a disk or a directory, which are reported in one line. Others are defects and have a traceback."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit: status 0, 2 for an error that the user can correct, 130 or 143 after a signal."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # before torch is loaded: its threads would wait for work at full speed, and take the time of those that have some
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    atexit.register(gc.freeze)  # or Python would spend half a second, as it ends, on looking for garbage in torch
    _open_streams()
    try:
        status = run(arguments)
        sys.stdout.flush()
    except InputError as error:
        status = _fail(str(error))
    except BrokenPipeError:  # the reader of the output has gone (| head)
        discard_stdout()
        status = 0
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        try:
            sys.stdout.flush()
        except OSError:  # the error was in writing the output: drop what is still in its buffer
            discard_stdout()
        what = f" {error.filename}" if error.filename else ""
        status = _fail(f"cannot read or write{what}: {error.strerror}")
    except KeyboardInterrupt:
        status = _fail("interrupted", 130)
    sys.exit(status)


def _fail(message: str, status: int = 2) -> int:
    warn(f"hmrnn: {message}")
    return status


def _open_streams() -> None:
    """Replace missing standard streams by empty ones, and let stdout write any character in any encoding."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (open until the end)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def run(words: list[str]) -> int:
    """Run the command that ``words`` name; its exit status."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"hmrnn {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in ARGUMENTS:
        known = ", ".join(ARGUMENTS)
        hint = did_you_mean(name, ARGUMENTS)
        raise InputError(f"unknown command {name!r}; expected one of {known} (see hmrnn --help){hint}")
    arguments: Any = ARGUMENTS[name]
    try:
        arguments = parsed(name, rest)
        arguments.check()
        with _notes():
            return _command(name)(arguments)
    except InputError as error:
        raise error.renamed(arguments.called(error.setting)) from error
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not NO_MEMORY.search(str(error)):
            raise
        wanted = re.search(r"tried to allocate ([\d.]+ ?\w+)", str(error))
        what = f"the {wanted[1]} that this needs" if wanted else "what this needs"
        raise InputError(f"the memory does not hold {what}; ask for less, or for smaller sizes") from error


@contextmanager
def _notes() -> Iterator[None]:
    """Print each Note as one line on stderr; other warnings are shown as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, Note):
                warn(f"hmrnn: note: {message}")
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def _command(name: str) -> Callable[[Any], int]:
    """A command. Importing torch makes many objects and no garbage, so it runs without the collector."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        if name in OF_MODELS:
            return partial(importlib.import_module("hmrnn.cli.models").run, name)
        run: Callable[[Any], int] = importlib.import_module(f"hmrnn.cli.{name}").run
        return run
    finally:
        if collecting:
            gc.enable()


def parsed(name: str, words: list[str]) -> Any:
    """The arguments of a command, not yet checked."""
    if name == "train":
        return train_arguments(words)
    arguments = arguments_of(name)
    found = parse(arguments, words, f"hmrnn {name}")
    for field in dataclasses.fields(arguments):
        if field.name in found and (model := field.metadata.get("model")):
            found.setdefault("model", model)
    return arguments(**found)
