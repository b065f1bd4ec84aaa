"""The files of a text corpus, and their symbols as code points or byte values, read block by block."""

from __future__ import annotations

import codecs
import io
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hmrnn.config import BUILT_IN_TEXTS, SPLITS, DataConfig
from hmrnn.errors import InputError, check_not_root, convert, no_file
from hmrnn.kinds.text.novel import PACKAGE, novel, novel_file
from hmrnn.kinds.text.spaces import without_spaces
from hmrnn.reading.plain import plain_blocks
from hmrnn.reading.vocabulary import Kind, code_points
from hmrnn.utils.archives import PACKED, Report, is_packed, read_blocks

_PTB_NAMES = ("ptb.char.{}.txt", "ptb.{}.txt", "{}.txt")


def symbol_kind(config: DataConfig) -> Kind:
    """Whether the symbols of the corpus are characters or bytes."""
    return "bytes" if config.bytes or config.format == "enwik8" else "characters"


def find_sources(config: DataConfig) -> list[Path]:
    """The files of a corpus in reading order; of format ptb: training, validation, test."""
    paths = [Path(os.path.expanduser(name)) for name in config.path]
    if config.format == "ptb" and len(paths) == 1 and paths[0].is_dir():
        for name in _PTB_NAMES:
            found = [_find(paths[0], name.format(split)) for split in SPLITS]
            if None not in found:
                return [path for path in found if path]
        raise InputError(
            f"{paths[0]} must hold ptb.char.train.txt, ptb.char.valid.txt and ptb.char.test.txt "
            "(or train.txt, valid.txt and test.txt) for format ptb; or give the three files",
            setting="data.path",
        )
    files = find_files(config)
    if config.format == "ptb" and len(files) != 3:
        raise InputError(
            "format ptb reads one directory, or three files (training, validation, test)",
            setting="data.path",
            value=config.path,
        )
    return files


def find_files(config: DataConfig) -> list[Path]:
    """The files that data.path names, those in directories of text included; InputError if one is missing."""
    if config.format in BUILT_IN_TEXTS:
        return [_manual_file() if config.format == "manual" else _novel_file()]
    if not config.path:
        what = "the directory of ptb.char.train.txt" if config.format == "ptb" else f"a {config.format} file"
        raise InputError(f"format {config.format} needs {what}", setting="data.path")
    if config.format in ("text8", "enwik8") and len(config.path) > 1:
        raise InputError(f"format {config.format} reads one file", setting="data.path", value=config.path)
    files: list[Path] = []
    for path in (Path(os.path.expanduser(name)) for name in config.path):
        if not os.path.exists(path):
            raise no_file(path)
        check_not_root(path)
        if path.is_dir() and config.format in ("text", "lines"):
            found = sorted(p for p in path.rglob("*") if p.is_file() and _unpacked_name(p).endswith(".txt"))
            if not found:
                raise InputError(
                    "is a directory without .txt files; give the files to read", setting="data.path", value=path
                )
            files += found
        elif path.is_file():
            files.append(path)
        else:
            what = "a directory" if path.is_dir() else "not a regular file"
            raise InputError(f"{path} is {what}; format {config.format} reads files on disk")
    if config.format == "enwik8" and files[0].suffix == ".zip":
        raise InputError(f"{files[0]} is a zip archive; unpack it first")
    return files


def names(sources: Sequence[Path]) -> str:
    """The files of a corpus as messages name them."""
    return str(sources[0]) if len(sources) == 1 else f"{sources[0]} (and {len(sources) - 1} more)"


def read_text(
    path: Path, config: DataConfig, report: Report, *, plain: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A file as blocks of code points or byte values; beside each block, 1 where a space after a symbol was removed.

    With ``plain``, accents are removed and typographic signs written in ASCII. ``report`` receives the bytes read.
    """
    codes = _read_codes(path, config, report, plain)
    if config.remove_spaces:
        yield from without_spaces(codes, symbol_kind(config))
    else:
        yield from ((block, np.zeros(len(block), np.uint8)) for block in codes)


def _read_codes(path: Path, config: DataConfig, report: Report, plain: bool) -> Iterator[np.ndarray]:
    if plain and (config.format not in ("text", "lines") or config.bytes):
        what = "bytes" if symbol_kind(config) == "bytes" else f"files in format {config.format}"
        raise InputError(f"is for text, and this model reads {what}; leave it out", setting="plain")
    if config.format in BUILT_IN_TEXTS:
        report(os.path.getsize(path))
        whole = manual() if config.format == "manual" else novel(path)
        yield np.frombuffer(whole.encode(), np.uint8) if config.bytes else code_points(whole)
    elif config.format == "ptb":
        yield from _ptb(path, report)
    elif config.format == "text8":
        yield from _text8(path, report)
    elif symbol_kind(config) == "bytes":
        yield from (np.frombuffer(block, np.uint8) for block in read_blocks(path, report))
    else:
        text = _decoded(path, report)
        yield from map(code_points, plain_blocks(text) if plain else text)


def manual() -> str:
    """The reference manual that comes with CPython: its topics by name, separated by blank lines.

    The text depends on the version of Python.
    """
    from pydoc_data import topics

    return "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"


def _manual_file() -> Path:
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise InputError("this Python comes without its manual (pydoc_data); give a text file instead") from error
    return Path(topics.__file__)


def _novel_file() -> Path:
    found = novel_file()
    if found is None:
        raise InputError(
            f"reads a book from the package {PACKAGE}, which is not installed; run pip install {PACKAGE}",
            setting="data.format",
            value="novel",
        )
    return found


def _decoded(path: Path, report: Report) -> Iterator[str]:
    """The text of a UTF-8 file in blocks, converted as by :func:`as_read`."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    start = 0  # bytes before this block
    for block in itertools.chain(read_blocks(path, report), [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            offset = start + len(block) - len(error.object) + error.start  # error.object starts in the previous block
            byte = error.object[error.start]
            raise _not_text(path, f"byte 0x{byte:02x}", offset, error.reason, convert(byte, offset)) from error
        if 0 in block:
            raise _not_text(path, "a zero byte", start + block.index(0), "text has none", "convert it to UTF-8")
        yield text
        start += len(block)


def as_read(text: str) -> str:
    r"""``text`` without a byte order mark and with every line end (\r\n, \r or \n) as \n, as files are read."""
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").replace("\r\n", "\n").replace("\r", "\n")


def _not_text(path: Path, what: str, offset: int, why: str, to_do: str) -> InputError:
    return InputError(
        f"{path} is not UTF-8 text: {what} at offset {offset} ({why}); {to_do}, or read it as bytes (data.bytes)"
    )


def _ptb(path: Path, report: Report) -> Iterator[np.ndarray]:
    """Symbols separated by single spaces, ``_`` for a space, one sentence per line."""
    space, line_end, underscore = map(ord, " \n_")
    before = line_end
    line = 1
    for codes in map(code_points, _decoded(path, report)):
        if not codes.size:
            continue
        previous = np.concatenate(([before], codes[:-1]))
        # 0: a line end; 1: a separator; 2: a symbol. Two neighbouring separators or symbols are an error.
        role = np.where(codes == line_end, 0, np.where(codes == space, 1, 2))
        previous_role = np.where(previous == line_end, 0, np.where(previous == space, 1, 2))
        wrong = np.flatnonzero(((role == previous_role) & (role > 0)) | ((codes < space) & (codes != line_end)))
        if wrong.size:
            at = wrong[0]
            raise InputError(
                f"{path} is not in the ptb format (symbols separated by single spaces, _ for a space): line "
                f"{line + np.count_nonzero(codes[:at] == line_end)} holds {chr(previous[at]) + chr(codes[at])!r}; "
                "for ordinary text use format text"
            )
        kept = codes[role != 1]
        yield np.where(kept == underscore, space, kept)
        before = int(codes[-1])
        line += int(np.count_nonzero(role == 0))


def _text8(path: Path, report: Report) -> Iterator[np.ndarray]:
    """The letters a to z and the space."""
    start = 0
    for block in read_blocks(path, report):
        codes = np.frombuffer(block, np.uint8)
        wrong = np.flatnonzero(((codes < ord("a")) | (codes > ord("z"))) & (codes != ord(" ")))
        if wrong.size:
            raise InputError(
                f"{path} is not in the text8 format (a to z and space): byte 0x{codes[wrong[0]]:02x} at offset "
                f"{start + wrong[0]}; for other text use format text"
            )
        yield codes
        start += len(block)


def _find(directory: Path, name: str) -> Path | None:
    candidates = (directory / (name + suffix) for suffix in ("", *PACKED))
    return next((path for path in candidates if path.is_file()), None)


def _unpacked_name(path: Path) -> str:
    return path.stem if is_packed(path) else path.name
