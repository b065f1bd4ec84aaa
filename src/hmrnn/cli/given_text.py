"""The text that a command is given, in a file or on standard input."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from hmrnn.errors import InputError

LINE_END = re.compile("\r\n|\r|\n")


def read(path: str | None, *, of_bytes: bool = False) -> str:
    """The text of a file, unpacked if need be, or of standard input; a line end after the last line is left out.

    With ``of_bytes``, for a model of bytes, it need not be UTF-8: other bytes are kept as lone surrogates, as Python
    keeps them in the arguments of a command, and as a vocabulary of bytes reads them.
    """
    if path is None and sys.stdin.isatty():
        raise missing()
    try:
        if path is not None:
            check_no_strokes(path)
            data = _content(Path(os.path.expanduser(path)))
        else:
            raw = getattr(sys.stdin, "buffer", None)  # which takes line ends and encodings as they are
            data = sys.stdin.read().encode("utf-8", "surrogatepass") if raw is None else raw.read()
        text = data.decode("utf-8", "surrogateescape" if of_bytes else "strict")
    except OSError as error:
        raise InputError(f"cannot read {path or 'standard input'}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        byte, at = f"byte 0x{error.object[error.start]:02x}", f" at offset {error.start}" if path else ""
        raise InputError(
            f"{path or 'standard input'} is not UTF-8 text: {byte}{at} ({error.reason}); convert it to UTF-8"
        ) from error
    return re.sub(rf"({LINE_END.pattern})\Z", "", text)


def _content(path: Path) -> bytes:
    from hmrnn.data.text import sources  # which brings NumPy

    if sources.is_packed(path):
        return b"".join(sources.read_blocks(path, lambda count: None))
    return path.read_bytes()  # from a pipe, too


def shown(text: str) -> str:
    """As it can be printed: bytes that are not UTF-8 by their numbers, such as \\xff."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode()


def missing() -> InputError:
    """What to raise where there is no text."""
    return InputError("no text: give one as an argument, by --file, or on standard input")


def check_characters(text: str) -> str:
    """``text`` of the command line; InputError if its bytes were not UTF-8."""
    if kept := re.search("[\udc80-\udcff]", text):
        raise InputError(f"the text is not UTF-8: byte 0x{ord(kept[0]) - 0xDC00:02x}; convert it to UTF-8")
    return text


def check_no_strokes(path: str) -> None:
    """InputError if a file that a model of text is to read holds strokes, by its name."""
    if ".npz" in Path(path).suffixes:
        raise InputError(f"{path} is a file of strokes, for a model of handwriting")
