"""The text that a command is given, in a file or on standard input."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from hmrnn.errors import InputError

LINE_END = re.compile("\r\n|\r|\n")


def read(path: str | None) -> str:
    """The text of a file, or of standard input; a line end after the last line is left out."""
    if path is None and sys.stdin.isatty():
        raise missing()
    try:
        if path is not None:
            check_no_strokes(path)
            text = Path(path).read_bytes().decode("utf-8")
        else:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(newline="")  # a model of bytes reads line ends as they are
            text = sys.stdin.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        byte, at = f"byte 0x{error.object[error.start]:02x}", f" at offset {error.start}" if path else ""
        raise InputError(
            f"{path or 'standard input'} is not UTF-8 text: {byte}{at} ({error.reason}); convert it to UTF-8"
        ) from error
    return re.sub(rf"({LINE_END.pattern})\Z", "", text)


def missing() -> InputError:
    """What to raise where there is no text."""
    return InputError("no text: give one as an argument, by --file, or on standard input")


def check_no_strokes(path: str) -> None:
    """InputError if a file that a model of text is to read holds strokes, by its name."""
    if ".npz" in Path(path).suffixes:
        raise InputError(f"{path} is a file of strokes, for a model of handwriting")
