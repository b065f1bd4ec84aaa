"""What a command is given to read: a text in an argument, a file or standard input, or a line of strokes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.cli.arguments.base import ModelArguments, TextArguments
from hmrnn.config import LABEL_FORMATS
from hmrnn.errors import InputError, convert
from hmrnn.kinds.strokes.files import read_strokes
from hmrnn.kinds.strokes.strokes import Strokes
from hmrnn.pretrained.load import load
from hmrnn.utils import archives
from hmrnn.utils.devices import choose_device

LINE_END = re.compile("\r\n|\r|\n")
LARGEST = 1 << 28
"""Bytes of the largest text that is read into memory in one piece."""


def open_model(arguments: ModelArguments) -> Any:
    """The model that a command is to use; InputError if the command has options that are not for such a model."""
    model = load(arguments.model, device=choose_device(arguments.device))
    if model.reads.modality in LABEL_FORMATS:
        raise InputError(f"{arguments.model} is a model of {model.reads.modality}; use hmrnn predict")
    arguments.check_reads(model.reads.modality)
    if (condition := getattr(arguments, "condition", None)) is not None:
        model.network.told = model.tell(condition)
    return model


def read(model: Any, arguments: TextArguments) -> Any:
    """What ``model.segment`` is to read: a text, or a line of strokes."""
    if model.reads.modality == "text":
        return read_text(arguments, model.vocabulary.kind)
    text, file = arguments.source()
    if text is not None:
        raise InputError("this is a model of handwriting, and a text was given; name a file of strokes by --file")
    strokes = read_strokes(file) if file else model.corpus().valid
    return choose_line(strokes, getattr(arguments, "line", None))


def how_to_read(model: Any, arguments: TextArguments) -> dict[str, Any]:
    """The options of ``model.segment`` for what :func:`read` gives."""
    return {"unknown": arguments.unknown} if model.reads.modality == "text" else {}


def choose_line(strokes: Strokes, which: str | None) -> np.ndarray:
    """A line by its name or its number, counted from 1; the first if ``which`` is None."""
    if which is None:
        return strokes[0]
    if which not in strokes.names and which.isdecimal():
        if len(which) > 18 or not 1 <= int(which) <= len(strokes):
            raise InputError(f"--line must lie between 1 and {len(strokes)}, or be the name of a line; got {which}")
        return strokes[int(which) - 1]
    return strokes[strokes.index(which)]


def read_text(arguments: TextArguments, kind: str) -> str:
    """The text of the argument, the file or standard input, for a vocabulary of ``kind``.

    A line end at the very end of a file or of standard input is dropped, and so is a byte order mark at its start. For
    a model of bytes the text need not be UTF-8: other bytes become lone surrogates, as in the arguments of a command.
    """
    text, file = _source(arguments)
    if text is None:
        _check_standard_input(file)
        text = _without_end(_decoded(read_bytes(file), file, kind))
    elif kind != "bytes" and (bad := re.search("[\udc80-\udcff]", text)):
        raise InputError(f"the text is not UTF-8: byte 0x{ord(bad[0]) - 0xDC00:02x}; convert it to UTF-8")
    return text


def read_lines(arguments: TextArguments, kind: str) -> Iterator[str]:
    """The lines of that text, without their ends; those of standard input as they arrive."""
    text, file = _source(arguments)
    raw = getattr(sys.stdin, "buffer", None)
    if text is not None or file is not None or raw is None:
        yield from LINE_END.split(read_text(arguments, kind))
        return
    _check_standard_input(file)
    for number, data in enumerate(iter(lambda: _reading(None, lambda: raw.readline(LARGEST + 1)), b"")):
        line = _decoded(_limited("a line of standard input", [data]), None, kind, start=number == 0)
        yield from LINE_END.split(_without_end(line))


def _source(arguments: TextArguments) -> tuple[str | None, str | None]:
    """The text and the file to read; neither for standard input."""
    text, file = arguments.source()
    return None if text == "-" else text, file


def _check_standard_input(file: str | None) -> None:
    if file is None and sys.stdin.isatty():
        raise InputError("no text: give one as an argument, by --file, or on standard input")


def _without_end(text: str) -> str:
    return re.sub(rf"({LINE_END.pattern})\Z", "", text)


def _decoded(data: bytes, path: str | None, kind: str, start: bool = True) -> str:
    name = path or "standard input"
    try:
        text = data.decode("utf-8", "surrogateescape" if kind == "bytes" else "strict")
        return text.removeprefix("\ufeff") if start and kind != "bytes" else text
    except UnicodeDecodeError as error:
        byte, at = error.object[error.start], f" at offset {error.start}" if path else ""
        to_do = convert(byte, error.start)
        raise InputError(f"{name} is not UTF-8 text: byte 0x{byte:02x}{at} ({error.reason}); {to_do}") from error


def read_bytes(path: str | None) -> bytes:
    """The content of a file, unpacked, or of standard input."""
    return _reading(path, lambda: _file(path) if path is not None else _standard_input())


def _reading(path: str | None, take: Callable[[], bytes]) -> bytes:
    try:
        return take()
    except OSError as error:
        raise InputError(f"cannot read {path or 'standard input'}: {error.strerror}") from error


def _file(name: str) -> bytes:
    check_no_strokes(name)
    path = Path(os.path.expanduser(name))
    if archives.is_packed(path):
        return _limited(name, archives.read_blocks(path, lambda count: None))
    with open(path, "rb") as file:  # which may be a pipe
        return _limited(name, iter(lambda: file.read(1 << 20), b""))


def _standard_input() -> bytes:
    raw = getattr(sys.stdin, "buffer", None)  # not decoded, with the line ends as they are
    if raw is None:
        return sys.stdin.read().encode("utf-8", "surrogatepass")
    return _limited("standard input", iter(lambda: raw.read(1 << 20), b""))


def _limited(name: str, blocks: Iterable[bytes]) -> bytes:
    """The blocks in one piece; InputError beyond LARGEST bytes, so that an endless file ends."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > LARGEST:
            raise InputError(
                f"{name} is larger than {LARGEST >> 20} MiB; hmrnn segment --stream and hmrnn evaluate --file read "
                "files of any size"
            )
    return bytes(data)


def check_no_strokes(path: str) -> None:
    """InputError if a file for a model of text holds strokes, by its name."""
    if ".npz" in Path(path).suffixes:
        raise InputError(f"{path} is a file of strokes, for a model of handwriting")
