"""Where a corpus is on disk, and its symbols as code points or byte values, read block by block."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import itertools
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.config import DataConfig
from hmrnn.config_use import STROKE_FORMATS
from hmrnn.data.text.plain import plain_blocks
from hmrnn.data.text.spaces import without_spaces
from hmrnn.data.text.vocabulary import Kind, code_points
from hmrnn.errors import InputError

Report = Callable[[int], None]
Progress = Callable[[int, int], None]

SPLITS = ("train", "valid", "test")
_BLOCK = 1 << 20  # bytes
_UNQUESTIONED, _PACKED = 1 << 30, 500  # bytes that any packed file may hold, and how many times its size beyond them
_UNPACKERS: dict[str, Callable[[Any], Any]] = {
    ".xz": lzma.LZMAFile,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
}
_PTB_NAMES = ("ptb.char.{}.txt", "ptb.{}.txt", "{}.txt")


def symbol_kind(config: DataConfig) -> Kind:
    """What the symbols of this format are."""
    return "bytes" if config.bytes or config.format == "enwik8" else "characters"


def find_sources(config: DataConfig) -> list[Path]:
    """The files of a corpus in the order they are read; for ptb, those of training, validation and test."""
    if config.format != "ptb":
        return find_files(config)
    if len(config.path) == 1 and (directory := Path(os.path.expanduser(config.path[0]))).is_dir():
        for name in _PTB_NAMES:
            found = [_find(directory, name.format(split)) for split in SPLITS]
            if None not in found:
                return [path for path in found if path]
        raise InputError(
            f"{directory} must hold ptb.char.train.txt, ptb.char.valid.txt and ptb.char.test.txt "
            "(or train.txt, valid.txt and test.txt) for format ptb; or name the three files with --data.path"
        )
    if len(config.path) == 1 and not directory.exists():
        return find_files(config)
    if len(config.path) not in (0, 3):
        raise InputError(
            "format ptb reads one directory, or three files (training, validation, test); "
            f"got {', '.join(config.path)}; check --data.path"
        )
    return find_files(config)


def find_files(config: DataConfig) -> list[Path]:
    """The files that ``config.path`` names, directories of text unfolded; InputError if one is missing."""
    if config.format in STROKE_FORMATS:
        raise InputError(f"format {config.format} is pen strokes, and text was expected; choose another --data.format")
    if config.bytes and config.format in ("ptb", "text8"):
        raise InputError(f"--data.bytes is for formats manual and text; format {config.format} has symbols of its own")
    if config.format == "manual":
        return [_manual_file()]
    if not config.path:
        what = "the directory of ptb.char.train.txt" if config.format == "ptb" else f"a {config.format} file"
        raise InputError(f"format {config.format} needs data, and none was named; give {what} with --data.path")
    if config.format in ("text8", "enwik8") and len(config.path) > 1:
        raise InputError(f"format {config.format} reads one file; got {', '.join(config.path)}; check --data.path")
    files: list[Path] = []
    for path in (Path(os.path.expanduser(name)) for name in config.path):
        if not os.path.exists(path):
            raise InputError(f"there is no file {path}, or it is out of reach; check the path")
        if path.is_dir() and config.format == "text":
            found = sorted(p for p in path.rglob("*") if p.is_file() and _unpacked_name(p).endswith(".txt"))
            if not found:
                raise InputError(f"{path} is a directory without .txt files; name the files to read with --data.path")
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
    """How messages call a corpus."""
    return str(sources[0]) if len(sources) == 1 else f"{sources[0]} (and {len(sources) - 1} more)"


def read_text(
    path: Path, config: DataConfig, report: Report, *, plain: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As :func:`read_codes`, and beside each block 1 where spaces were taken out right after a symbol."""
    codes = read_codes(path, config, report, plain=plain)
    if config.remove_spaces:
        yield from without_spaces(codes, symbol_kind(config))
    else:
        yield from ((block, np.zeros(len(block), np.uint8)) for block in codes)


def read_codes(path: Path, config: DataConfig, report: Report, *, plain: bool = False) -> Iterator[np.ndarray]:
    """The symbols of a source, block by block, as code points or byte values; ``plain``: of the text in plain ASCII.

    ``report`` is told how many bytes of the file each block took.
    """
    if plain and (config.format != "text" or config.bytes):
        what = "bytes" if symbol_kind(config) == "bytes" else f"files in format {config.format}"
        raise InputError(f"--plain is for text, and this model reads {what}; leave it out")
    if config.format == "manual":
        report(os.path.getsize(path))
        yield np.frombuffer(manual().encode(), np.uint8) if config.bytes else code_points(manual())
    elif config.format == "ptb":
        yield from _ptb(path, report)
    elif config.format == "text8":
        yield from _text8(path, report)
    elif symbol_kind(config) == "bytes":
        yield from (np.frombuffer(block, np.uint8) for block in read_blocks(path, report))
    else:
        text = _decoded(path, report)
        yield from map(code_points, plain_blocks(text) if plain else text)


def is_packed(path: Path) -> bool:
    """Whether its name says so."""
    return path.suffix in _UNPACKERS


def read_blocks(path: Path, report: Report) -> Iterator[bytes]:
    """The content of a file in blocks, unpacked if it is packed as .xz, .gz or .bz2."""
    try:
        with open(path, "rb") as file:
            unpacked = _UNPACKERS[path.suffix](file) if is_packed(path) else file
            before = total = 0
            while block := unpacked.read(_BLOCK):
                report(file.tell() - before)
                before, total = file.tell(), total + len(block)
                if total > _UNQUESTIONED and total > _PACKED * before:
                    raise InputError(
                        f"{path} unpacks to more than {_PACKED} times its size; unpack it yourself if that is meant"
                    )
                yield block
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole {path.suffix} file ({error}); fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from error


def count_progress(progress: Progress | None, total: int) -> Report:
    """A function that is told of bytes read, and tells ``progress`` how many they are by now, out of ``total``."""
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    return report


def manual() -> str:
    """The reference manual inside CPython: its topics in the order of their names, a blank line between them.

    The text depends on the version of the Python that runs.
    """
    from pydoc_data import topics

    return "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"


def _manual_file() -> Path:
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise InputError("this Python comes without its manual (pydoc_data); give a text file instead") from error
    return Path(topics.__file__)


def _decoded(path: Path, report: Report) -> Iterator[str]:
    """The text of a UTF-8 file, as :func:`as_read` has it."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    start = 0  # bytes before this block
    for block in itertools.chain(read_blocks(path, report), [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            offset = start + len(block) - len(error.object) + error.start  # error.object begins in the block before
            raise _not_text(path, f"byte 0x{error.object[error.start]:02x}", offset, error.reason) from error
        if 0 in block:
            raise _not_text(path, "a zero byte", start + block.index(0), "text has none")
        yield text
        start += len(block)


def as_read(text: str) -> str:
    r"""``text`` as a file that holds it is read: without a byte order mark, every line end (\r\n, \r or \n) as \n."""
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").replace("\r\n", "\n").replace("\r", "\n")


def _not_text(path: Path, what: str, offset: int, why: str) -> InputError:
    return InputError(
        f"{path} is not UTF-8 text: {what} at offset {offset} ({why}); "
        "convert it to UTF-8, or read it as bytes with --data.bytes"
    )


def _ptb(path: Path, report: Report) -> Iterator[np.ndarray]:
    """Characters separated by single spaces, ``_`` for a space, a sentence per line."""
    space, line_end, underscore = map(ord, " \n_")
    before = line_end
    line = 1
    for codes in map(code_points, _decoded(path, report)):
        if not codes.size:
            continue
        previous = np.concatenate(([before], codes[:-1]))
        # 0: a line end; 1: a separator; 2: a symbol. Equal neighbours, line ends apart, are not this format.
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
    candidates = (directory / (name + suffix) for suffix in ("", *_UNPACKERS))
    return next((path for path in candidates if path.is_file()), None)


def _unpacked_name(path: Path) -> str:
    return path.stem if is_packed(path) else path.name
