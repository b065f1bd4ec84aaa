"""InputError, the error that a caller can correct, and the hint at the name that was probably meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable


class InputError(ValueError):
    """An argument, a setting or a file is not as required.

    The message is one line: what was expected, what was found and what to do. It names settings in full, such as
    train.epochs, and no flags: the command line replaces these names by its flags, prints the message without a
    traceback and exits with status 2.
    """


def did_you_mean(given: str, known: Iterable[str], *, files: bool = False) -> str:
    """The end of a message about an unknown name: "; did you mean X?", or nothing if no known name is similar.

    With ``files`` the names of files in the directory of ``given`` are tried, too.
    """
    nearest = difflib.get_close_matches(given, list(known), n=1)
    if files and not nearest:
        folder, name = os.path.split(given.rstrip(os.sep))
        here = folder or os.curdir
        there = os.listdir(here) if os.path.isdir(here) and os.access(here, os.R_OK) else []
        nearest = [os.path.join(folder, one) for one in difflib.get_close_matches(name, there, n=1)]
    return f"; did you mean {nearest[0]}?" if nearest else ""
