"""A text that a command is given: as an argument, in a file or on standard input."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hmrnn.errors import InputError, convert
from hmrnn.utils import archives

LINE_END = re.compile("\r\n|\r|\n")
LARGEST = 1 << 28
"""Bytes of the largest text that is read into memory in one piece."""


def read_text(text: str | None, file: str | None, kind: str) -> str:
    """The text that is given, or that of the file or of standard input, for a vocabulary of ``kind``.

    A line end at the very end of a file or of standard input is dropped, and so is a byte order mark at its start. For
    a model of bytes the text need not be UTF-8: other bytes become lone surrogates, as in the arguments of a command.
    """
    if text is None:
        _check_standard_input(file)
        text = _without_end(decoded(read_bytes(file), file, kind))
    elif kind != "bytes" and (bad := re.search("[\udc80-\udcff]", text)):
        raise InputError(f"the text is not UTF-8: byte 0x{ord(bad[0]) - 0xDC00:02x}; convert it to UTF-8")
    return text


def read_lines(text: str | None, file: str | None, kind: str) -> Iterator[str]:
    """The lines of that text, without their ends; those of standard input as they arrive."""
    if text is not None or file is not None:
        yield from LINE_END.split(read_text(text, file, kind))
        return
    _check_standard_input(file)
    for number, data in enumerate(iter(lambda: sys.stdin.buffer.readline(LARGEST + 1), b"")):
        line = decoded(_limited("a line of standard input", [data]), None, kind, start=number == 0)
        yield from LINE_END.split(_without_end(line))


def _check_standard_input(file: str | None) -> None:
    if file is None and sys.stdin.isatty():
        raise InputError("no text: give one as an argument, by --file, or on standard input")


def _without_end(text: str) -> str:
    return re.sub(rf"({LINE_END.pattern})\Z", "", text)


def decoded(data: bytes, path: str | None, kind: str = "", start: bool = True) -> str:
    """The text of a file, or of standard input, without a byte order mark at its ``start``; see :func:`read_text`."""
    name = path or "standard input"
    try:
        text = data.decode("utf-8", "surrogateescape" if kind == "bytes" else "strict")
        return text.removeprefix("\ufeff") if start and kind != "bytes" else text
    except UnicodeDecodeError as error:
        byte, at = error.object[error.start], f" at offset {error.start}" if path else ""
        to_do = convert(byte, error.start)
        raise InputError(f"{name} is not UTF-8 text: byte 0x{byte:02x}{at} ({error.reason}); {to_do}") from error


def read_bytes(path: str | None) -> bytes:
    """The content of a file, unpacked, or of standard input, with the line ends as they are."""
    if path is None:
        return _limited("standard input", iter(lambda: sys.stdin.buffer.read(1 << 20), b""))
    return _limited(path, archives.read_blocks(Path(os.path.expanduser(path)), lambda count: None))


def _limited(name: str, blocks: Iterable[bytes]) -> bytes:
    return archives.joined(name, blocks, LARGEST, "hmrnn segment --stream and evaluate --file read files of any size")
