"""Text corpora: files as arrays of indices, memory-mapped from a cache, split into training, validation and test.

Sources are read twice, block by block: to find the symbols and where each occurs first, then to write their indices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import math
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hmrnn.config import BUILT_IN_TEXTS, SPLITS, DataConfig
from hmrnn.config.json import from_json, to_json
from hmrnn.errors import InputError
from hmrnn.kinds.text.sources import find_files, find_sources, names, read_text, symbol_kind
from hmrnn.reading.conditions import read_conditions
from hmrnn.reading.vocabulary import Vocabulary, code_points, unseen_symbols
from hmrnn.utils.archives import Progress, Report, count_progress
from hmrnn.utils.cache import entry_names, folder, source_state, total_size, unusable

_CACHE_VERSION = 2
_ATTEMPTS = 4  # another process that repairs the same entry may remove it after it was written
_STALE = 24 * 60 * 60  # seconds after which an unfinished entry is considered abandoned
_NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Texts for training, validation and test as indices into the vocabulary of the training part."""

    name: str
    vocabulary: Vocabulary
    train: np.ndarray
    """Read-only and memory-mapped, as are valid and test."""
    valid: np.ndarray
    test: np.ndarray
    replaced: dict[str, int]
    """For each split, the number of symbols that the training part lacks; the unknown symbol replaces them."""
    spaces: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """With data.remove_spaces: for each split, 1 where spaces followed a symbol, else 0. Otherwise empty."""
    conditions: tuple[str, ...] = ()
    """With data.condition: the condition of every line of the text."""

    def describe(self) -> str:
        """What it holds, in a few lines."""
        lines = [f"{self.name}: {len(self.vocabulary)} symbols ({self.vocabulary.kind})"]
        for name in SPLITS:
            part: np.ndarray = getattr(self, name)
            replaced = f", {self.replaced[name]} replaced by the unknown symbol" if self.replaced.get(name) else ""
            start = self.vocabulary.decode(part[:60])
            lines.append(f"{name:5} {len(part):>12,} symbols{replaced}, starts {start!r}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """corpus.json of a cache entry. Beside it, symbols.bin holds the indices of the three splits, one after another.

    With ``spaces``, spaces.bin holds a byte for each of them: 1 where spaces followed the symbol.
    """

    name: str
    vocabulary: dict[str, Any]
    lengths: tuple[int, int, int]
    replaced: dict[str, int]
    spaces: bool = False


def load_corpus(config: DataConfig, progress: Progress | None = None, *, training: int = 2) -> Corpus:
    """The corpus that ``config`` names; from the cache, if its sources have not changed.

    Several files are read as one text. Formats without their own split are cut into training, validation and test, in
    this order. In text of characters every kind of line end becomes "\\n" and a byte order mark is dropped.

    Args:
        config: which corpus.
        progress: called with the bytes read so far and the total; every source is read twice.
        training: the fewest symbols of the training part; with fewer, an InputError says how many the text needs.
    """
    sources = find_sources(config)
    state = source_state(sources)
    cache = folder(config.cache)
    options: list[Any] = [config.format, config.bytes, config.valid_fraction, config.test_fraction, config.unseen]
    places = [os.path.abspath(path) for path in config.path or sources]
    if config.min_count > 1:
        options.append(config.min_count)
    if config.symbols or config.unknown:
        options += [config.symbols, config.unknown]
    prefix, name = entry_names([options, *["remove spaces"] * config.remove_spaces, places], _CACHE_VERSION, state)
    entry = cache / name
    try:
        for _ in range(_ATTEMPTS):
            if corpus := _open(entry):
                _split(config, sources, [len(corpus.train), len(corpus.valid), len(corpus.test)], training)
                conditions = read_conditions(config.condition) if config.condition else ()
                return dataclasses.replace(corpus, conditions=conditions)
            temporary = cache / f".{prefix}{uuid.uuid4().hex}"
            try:
                temporary.mkdir(parents=True)
                report = count_progress(progress, 2 * total_size(state))
                try:
                    _write(temporary, config, sources, report, training)
                except InputError as error:
                    if source_state(sources) != state:
                        raise _changed(sources) from error
                    raise
                if source_state(sources) != state:
                    raise _changed(sources)
                _publish(temporary, entry, prefix)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise unusable(cache, error) from error
    raise InputError(
        f"{entry} is removed or damaged as soon as it is written; give another directory, here or as HMRNN_CACHE",
        setting="data.cache",
    )


def read_symbols_and_spaces(
    paths: Sequence[str],
    vocabulary: Vocabulary,
    config: DataConfig,
    progress: Progress | None = None,
    *,
    plain: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The texts in ``paths`` as indices into a vocabulary; beside them, 1 where spaces were removed after a symbol.

    Files are read in the format of ``config`` (built-in texts: as text), and data.unseen decides about symbols outside
    the vocabulary: InputError, or the unknown symbol if there is one. With ``plain`` the text is converted to ASCII.
    """
    format = "text" if config.format in BUILT_IN_TEXTS else config.format
    config = dataclasses.replace(config, path=tuple(paths), format=format)
    if symbol_kind(config) != vocabulary.kind:
        raise InputError(f"the vocabulary holds {vocabulary.kind}, but the config asks for {symbol_kind(config)}")
    files = find_files(config)
    report = count_progress(progress, total_size(source_state(files)))
    parts = [(np.zeros(0, vocabulary.dtype), np.zeros(0, np.uint8))]
    position = 0
    for codes, spaces in itertools.chain.from_iterable(read_text(path, config, report, plain=plain) for path in files):
        parts.append((vocabulary.index(codes, config.unseen, position), spaces))
        position += len(codes)
    if position == 0:
        raise InputError(f"{names(files)} is empty; give a file with text")
    symbols, removed = zip(*parts)
    return np.concatenate(symbols), np.concatenate(removed)


def _write(directory: Path, config: DataConfig, sources: Sequence[Path], report: Report, training: int) -> None:
    """Read the sources and write the files of a cache entry."""
    first, counts = _scan(config, sources, report)
    lengths = _split(config, sources, counts, training)
    ends = np.cumsum(lengths)
    further = _further(config)
    unseen = np.setdiff1d(np.flatnonzero((first >= ends[0]) & (first < _NEVER)), further)
    if unseen.size and config.unseen == "error":
        advice = "remove them, or set data.unseen to replace"
        raise unseen_symbols(symbol_kind(config), unseen, first[unseen], advice)
    kept = first < ends[0]
    if config.min_count > 1:
        kept &= _frequencies(config, sources, len(first), ends[0]) >= config.min_count
        if not kept.any():
            raise InputError(
                "no symbol occurs as often; give a smaller number", setting="data.min_count", value=config.min_count
            )
    kept[further] = True
    some_unknown = config.unknown or bool(((first < _NEVER) & ~kept).any())
    vocabulary = Vocabulary.of_codes(symbol_kind(config), np.flatnonzero(kept), unknown=some_unknown)

    replaced = np.zeros(3, np.int64)
    position = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(directory / "symbols.bin", "wb"))
        beside = stack.enter_context(open(directory / "spaces.bin", "wb")) if config.remove_spaces else None
        for codes, spaces in itertools.chain.from_iterable(read_text(path, config, report) for path in sources):
            if position + len(codes) > ends[-1]:
                raise _changed(sources)
            indices = vocabulary.index(codes, "replace", position)  # data.unseen was obeyed above
            indices.tofile(file)
            if beside is not None:
                spaces.tofile(beside)
            unknown = np.flatnonzero(indices == len(vocabulary.symbols)) + position
            replaced += np.bincount(np.searchsorted(ends, unknown, side="right"), minlength=3)
            position += len(codes)
        if position < ends[-1]:
            raise _changed(sources)
        for written in filter(None, (file, beside)):
            written.flush()
            os.fsync(written.fileno())
    counts_replaced = dict(zip(SPLITS, replaced.tolist()))
    entry = _Entry(_title(config), vocabulary.to_dict(), lengths, counts_replaced, config.remove_spaces)
    (directory / "corpus.json").write_bytes(to_json(entry))


def _further(config: DataConfig) -> np.ndarray:
    """The code points or byte values of data.symbols."""
    codes = code_points(config.symbols)
    if symbol_kind(config) == "bytes" and codes.size and codes.max() > 255:
        raise InputError("must be bytes, characters up to U+00FF", setting="data.symbols", value=chr(codes.max()))
    return codes


def _changed(sources: Sequence[Path]) -> InputError:
    return InputError(f"{names(sources)} changed while it was read; try again when it is complete")


def _scan(config: DataConfig, sources: Iterable[Path], report: Report) -> tuple[np.ndarray, list[int]]:
    """The first position of each code point or byte value in the joined sources, and the symbols of each source."""
    first = np.full(256 if symbol_kind(config) == "bytes" else sys.maxunicode + 1, _NEVER)
    counts = []
    position = 0
    for path in sources:
        start = position
        for codes, _ in read_text(path, config, report):
            new = np.flatnonzero(first[codes] == _NEVER)
            symbols, at = np.unique(codes[new], return_index=True)
            first[symbols] = position + new[at]
            position += len(codes)
        counts.append(position - start)
    return first, counts


def _frequencies(config: DataConfig, sources: Iterable[Path], size: int, end: int) -> np.ndarray:
    """How often each code point or byte value occurs in the first ``end`` symbols of the joined sources."""
    frequencies = np.zeros(size, np.int64)
    position = 0
    for codes, _ in itertools.chain.from_iterable(read_text(path, config, lambda size: None) for path in sources):
        frequencies += np.bincount(codes[: max(0, end - position)], minlength=size)
        position += len(codes)
        if position >= end:
            break
    return frequencies


def _split(config: DataConfig, sources: Sequence[Path], counts: Sequence[int], training: int) -> tuple[int, int, int]:
    """The lengths of training, validation and test part.

    InputError if a part has no symbol to predict, or the training part fewer than ``training`` symbols.
    """
    streams = f"so that the training part has {training}, one more than train.batch_size times train.length"
    advice = "; give more text, or lower these"
    if config.format == "ptb":
        for path, count, needed in zip(sources, counts, (training, 2, 2)):
            if count < needed:
                why, more = (f", {streams}", advice) if needed > 2 else ("", "")
                raise InputError(
                    f"{path} is too short: it must hold at least {needed} symbols{why}; it holds {count}{more}"
                )
        return counts[0], counts[1], counts[2]
    total = sum(counts)
    if total == 0:
        raise InputError(f"{names(sources)} is empty; give a file with text")
    own_split = config.format in ("text8", "enwik8")
    # Exactly the decimal fraction of the setting, not the nearest binary one.
    valid, test = (Fraction("0.05" if own_split else str(f)) for f in (config.valid_fraction, config.test_fraction))
    share = 1 - valid - test
    parts = total - int(total * valid) - int(total * test), int(total * valid), int(total * test)
    of_each, of_training = math.ceil(2 / min(valid, test, share)), math.ceil(training / share)
    if total < of_each or parts[0] < training:
        needed, why, more = max(
            (of_each, "so that training, validation and test have 2 each", ""), (of_training, streams, advice)
        )
        raise InputError(
            f"{names(sources)} is too short: it must hold at least {needed} symbols, {why}; it holds {total}{more}"
        )
    return parts


def _title(config: DataConfig) -> str:
    title = (
        config.format if config.format not in ("text", "lines") else ", ".join(Path(path).name for path in config.path)
    )
    return f"{title} without spaces" if config.remove_spaces else title


def _open(entry: Path) -> Corpus | None:
    """The corpus in a cache entry; None if there is none or it is damaged."""
    try:
        about = from_json((entry / "corpus.json").read_bytes(), _Entry, str(entry))
        vocabulary = Vocabulary.from_dict(about.vocabulary)
        if (entry / "symbols.bin").stat().st_size != sum(about.lengths) * vocabulary.dtype.itemsize:
            return None
        if about.spaces and (entry / "spaces.bin").stat().st_size != sum(about.lengths):
            return None
        symbols = np.asarray(np.memmap(entry / "symbols.bin", vocabulary.dtype, "r"))
        spaces = np.asarray(np.memmap(entry / "spaces.bin", np.uint8, "r")) if about.spaces else None
    except (FileNotFoundError, NotADirectoryError, InputError):
        return None
    ends = np.cumsum(about.lengths)[:2]
    train, valid, test = np.split(symbols, ends)
    beside = {} if spaces is None else dict(zip(SPLITS, np.split(spaces, ends)))
    return Corpus(about.name, vocabulary, train, valid, test, about.replaced, beside)


def _publish(temporary: Path, entry: Path, prefix: str) -> None:
    """Rename a finished entry and remove the entries it replaces.

    Removal may fail if another process removes the same entry; remains do no harm.
    """
    for old in entry.parent.glob(f"{prefix}*"):
        if old != entry or not _open(old):
            shutil.rmtree(old, ignore_errors=True)
    for unfinished in entry.parent.glob(f".{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            if unfinished != temporary and time.time() - unfinished.stat().st_mtime > _STALE:
                shutil.rmtree(unfinished, ignore_errors=True)
    try:
        temporary.rename(entry)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else another process has written the same entry
            raise
