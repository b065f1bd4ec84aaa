"""InputError, the error that a caller can correct; notes to the user; and hints for messages."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
from collections.abc import Iterable
from typing import Any

_LONGEST = 1000
"""Characters of a message: names and values in it may come from a damaged or hostile file."""


class InputError(ValueError):
    """An argument, a setting or a file is not as required.

    The message is one line: what was expected, what was found and what to do. The command line prints it without a
    traceback and exits with status 2. Line breaks are escaped; of more than 1,000 characters the middle is left out.

    Args:
        message: the message; if a setting is given, without its name and its value, which are put before it.
        setting: what must be changed: a setting in full, such as train.epochs, or the name of an argument.
        value: its value, unless that does not matter.
    """

    def __init__(self, message: str, *, setting: str = "", value: Any = None) -> None:
        self.message, self.setting, self.value = message, setting, value
        words = value if isinstance(value, tuple) else () if value is None else (value,)
        named = " ".join([setting, *map(str, words)]).rstrip()
        line = "\\n".join((f"{named}: {message}" if setting else message).splitlines())
        super().__init__(line if len(line) <= _LONGEST else f"{line[:700]} ... {line[-290:]}")

    def renamed(self, name: str) -> InputError:
        """This error, about the same setting by the ``name`` under which the caller knows it."""
        return InputError(self.message, setting=name, value=self.value)


class Note(UserWarning):
    """What the user should know, in one line that the command line prints as it is."""


class TextNote(Note):
    """Symbols of a text were read as others, because training never showed them to the model."""


def convert(byte: int, offset: int) -> str:
    """What to do about a file with a byte that UTF-8 does not have at that offset: the usual encoding is named."""
    encoding = "UTF-16" if byte == 0 or (offset == 0 and byte in (0xFE, 0xFF)) else "WINDOWS-1252"
    return f"convert it to UTF-8, as by iconv -f {encoding} -t UTF-8"


def no_file(path: str | os.PathLike[str], hint: str = "", what: str = "file") -> InputError:
    """The error about a path at which there is nothing, or a link that leads back to itself."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return InputError(f"{path} is a link in a loop of links, which leads to no {what}; remove or correct it")
    return InputError(f"there is no {what} {path}, or it cannot be reached; check the path{hint}")


def installed(module: str, what: str, extra: str) -> Any:
    """A module of an extra of hmrnn, or one that imports it; InputError, about ``what`` needs it, if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "hmrnn":
            raise
        raise InputError(f"{what} needs {error.name}: pip install 'hmrnn[{extra}]'") from error


def check_not_root(path: str | os.PathLike[str]) -> None:
    """InputError if a folder whose files are to be read is the root of all files."""
    if os.path.isdir(path) and os.path.realpath(path) == os.path.realpath(os.sep):
        raise InputError(f"{path} holds all files of this machine; name a folder with those to read")


def did_you_mean(given: str, known: Iterable[str], *, files: bool = False) -> str:
    """The end of a message about an unknown name: "; did you mean X?", or nothing if no known name is similar.

    With ``files`` the names of files in the directory of ``given`` are tried, too.
    """
    nearest = _nearest(given, list(known))
    if files and not nearest:
        folder, name = os.path.split(given.rstrip(os.sep))
        here = folder or os.curdir
        there = os.listdir(here) if os.path.isdir(here) and os.access(here, os.R_OK) else []
        nearest = [os.path.join(folder, one) for one in _nearest(name, there)]
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _nearest(given: str, known: list[str]) -> list[str]:
    """At most one name that ``given`` begins, or that differs from it by a slip."""
    begun = [name for name in known if len(given) > 1 and name.startswith(given)]
    return begun if len(begun) == 1 else difflib.get_close_matches(given, known, n=1, cutoff=0.7)
