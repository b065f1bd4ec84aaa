"""The one error type that means: the caller can mend this; the name that was probably meant, and the flag to use."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping


class InputError(ValueError):
    """What was asked for cannot be done as asked.

    The message is one line that says what was expected, what came and what to do. The command line prints it without a
    traceback and exits with status 2.
    """


def did_you_mean(given: str, known: Iterable[str], *, files: bool = False) -> str:
    """What to add to a message about a name that is not known: the nearest one that is, if any is near.

    With ``files`` it may also be that of a file or a directory beside where ``given`` would be.
    """
    nearest = difflib.get_close_matches(given, list(known), n=1)
    if files and not nearest:
        folder, name = os.path.split(given.rstrip(os.sep))
        here = folder or os.curdir
        there = os.listdir(here) if os.path.isdir(here) and os.access(here, os.R_OK) else []
        nearest = [os.path.join(folder, one) for one in difflib.get_close_matches(name, there, n=1)]
    return f"; did you mean {nearest[0]}?" if nearest else ""


@contextlib.contextmanager
def own_flags(**own: str) -> Iterator[None]:
    """Messages of code that commands share name flags of hmrnn train: put this command's own flags in their place."""
    try:
        yield
    except InputError as error:
        named = r"--data\.([a-z-]+)\b(?!-| of hmrnn)"  # but for those that are said to be another's already
        said = re.sub(named, lambda flag: own.get(flag[1]) or f"{flag[0]} of hmrnn train", str(error))
        raise InputError(said) from error


def refuse(given: Mapping[str, object], why: str) -> None:
    """InputError with the first flag that is given, and why that may not be."""
    for flag, value in given.items():
        if value:
            raise InputError(f"{flag} {why}")
