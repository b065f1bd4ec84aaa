"""Text corpora: files as arrays of indices, split into training, validation and test."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from hmrnn.config import SPLITS
from hmrnn.errors import InputError
from hmrnn.kind import Progress
from hmrnn.kinds.text.settings import BUILT_IN_TEXTS, TextData
from hmrnn.kinds.text.sources import find_files, names, read_text, symbol_kind
from hmrnn.reading.conditions import read_conditions
from hmrnn.reading.vocabulary import Vocabulary, code_points, unseen_symbols
from hmrnn.utils.archives import count_progress
from hmrnn.utils.cache import source_state, total_size

_BLOCK = 1 << 16  # symbols that are counted at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Texts for training, validation and test as indices into the vocabulary of the training part."""

    name: str
    vocabulary: Vocabulary
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    replaced: dict[str, int]
    """For each split, the number of symbols that the training part lacks; the unknown symbol replaces them."""
    spaces: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """With data.remove_spaces: for each split, 1 where spaces followed a symbol, else 0. Otherwise empty."""
    conditions: tuple[str, ...] = ()
    """With data.condition: the condition of every line of the text."""

    @property
    def spec(self) -> Vocabulary:
        return self.vocabulary

    @functools.cached_property
    def lines(self) -> dict[str, tuple[list[np.ndarray], tuple[str, ...] | None]]:
        """The lines of each part, and their conditions, if there are any.

        A line that a cut between two parts runs through belongs to neither.
        """
        end, number, broken = line_end(self.vocabulary), 0, False  # the lines so far; whether the next has begun
        parts, given = {}, np.array(self.conditions)
        for name in SPLITS:
            symbols: np.ndarray = getattr(self, name)
            lines, places = lines_of(symbols, end)
            whole = places >= broken
            if not whole.any():
                raise InputError(
                    f"no whole line of {self.name} is left for the {name} part; give more lines, or change this and "
                    "data.test_fraction",
                    setting="data.valid_fraction",
                )
            parts[name] = lines[len(lines) - np.count_nonzero(whole) :], number + places[whole]
            number, broken = number + int(np.count_nonzero(symbols == end)), bool(symbols[-1] != end)
        if len(given) not in (0, number + broken):
            raise InputError(
                f"has {len(given)} rows, but the text has {number + broken} lines; give one row per line",
                setting="data.condition",
            )
        rows = {name: tuple(given[places].tolist()) if len(given) else None for name, (_, places) in parts.items()}
        return {name: (lines, rows[name]) for name, (lines, _) in parts.items()}

    def encoded(self, part: str) -> tuple[list[np.ndarray], tuple[str, ...] | None]:
        return self.lines[part]

    def describe(self) -> str:
        """What it holds, in a few lines."""
        lines = [f"{self.name}: {len(self.vocabulary)} symbols ({self.vocabulary.kind})"]
        for name in SPLITS:
            part: np.ndarray = getattr(self, name)
            replaced = f", {self.replaced[name]} replaced by the unknown symbol" if self.replaced.get(name) else ""
            start = self.vocabulary.decode(part[:60])
            lines.append(f"{name:5} {len(part):>12,} symbols{replaced}, starts {start!r}")
        return "\n".join(lines)


def line_end(vocabulary: Vocabulary) -> int:
    """The index of the line end; -1 if there is none."""
    return vocabulary.values.index(ord("\n")) if ord("\n") in vocabulary.values else -1


def lines_of(symbols: np.ndarray, end: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The whole lines of a text that are not blank, each from the ``end`` before it to its own; their places."""
    ends = np.flatnonzero(symbols == end) + 1
    starts = np.concatenate([[0], ends])[:-1]
    places = np.flatnonzero(ends - starts > 1)
    first = [np.append(end, symbols[: ends[0]])] if 0 in places else []
    return [*first, *(symbols[starts[k] - 1 : ends[k]] for k in places[len(first) :])], places


def load_corpus(config: TextData, progress: Progress = None) -> Corpus:
    """The corpus that ``config`` names, read into memory: one or two bytes per symbol.

    Several files are read as one text. Formats without their own split are cut into training, validation and test, in
    this order. In text of characters every kind of line end becomes "\\n" and a byte order mark is dropped.
    ``progress`` is called with the bytes read so far and the total.
    """
    files = find_files(config)
    kind = symbol_kind(config)
    codes, numbers, removed, counts = _read(files, config, progress)
    ends = np.cumsum(_lengths(config, counts, files))
    blocks = (numbers[: ends[0]][start : start + _BLOCK] for start in range(0, ends[0], _BLOCK))
    occurring = sum((np.bincount(block, minlength=len(codes)) for block in blocks), np.zeros(len(codes), np.int64))
    kept = occurring >= config.min_count
    if not kept.any():
        raise InputError(
            "no symbol occurs as often; give a smaller number", setting="data.min_count", value=config.min_count
        )
    kept |= np.isin(codes, further := code_points(config.symbols))
    lacking = np.flatnonzero((occurring == 0) & ~kept)
    if lacking.size and config.unseen == "error":
        found, first = np.unique(numbers[ends[0] :], return_index=True)
        at = ends[0] + first[np.isin(found, lacking)]
        raise unseen_symbols(kind, codes[lacking], at, "remove them, or set data.unseen to replace")
    vocabulary = Vocabulary.of_codes(kind, np.union1d(codes[kept], further), config.unknown or not bool(kept.all()))
    symbols = vocabulary.index(codes, "replace")[numbers]
    unknown = len(vocabulary.symbols)
    split = dict(zip(SPLITS, np.split(symbols, ends[:2])))
    return Corpus(
        _title(config), vocabulary, **split,
        replaced={name: int(np.count_nonzero(part == unknown)) for name, part in split.items()},
        spaces=dict(zip(SPLITS, np.split(removed, ends[:2]))) if config.remove_spaces else {},
        conditions=read_conditions(config.condition) if config.condition else (),
    )  # fmt: skip


def read_symbols_and_spaces(
    paths: Sequence[str],
    vocabulary: Vocabulary,
    config: TextData,
    progress: Progress = None,
    *,
    plain: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The texts in ``paths`` as indices into a vocabulary; beside them, 1 where spaces were removed after a symbol.

    Files are read in the format of ``config`` (built-in texts: as text), and data.unseen decides about symbols outside
    the vocabulary: InputError, or the unknown symbol if there is one. With ``plain`` the text is converted to ASCII.
    """
    config = as_files(config, paths)
    parts = [(np.zeros(0, vocabulary.dtype), np.zeros(0, np.uint8))]
    position = 0
    for _, codes, spaces in _blocks(find_files(config), config, progress, plain):
        parts.append((vocabulary.index(codes, config.unseen, position), spaces))
        position += len(codes)
    symbols, removed = zip(*parts)
    return np.concatenate(symbols), np.concatenate(removed)


def as_files(config: TextData, paths: Sequence[str]) -> TextData:
    """Other files in the format of ``config``, or as text if its own is built in."""
    return dataclasses.replace(
        config, path=tuple(paths), format="text" if config.format in BUILT_IN_TEXTS else config.format
    )


def _read(
    files: Sequence[Path], config: TextData, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """The codes that occur, and the text as numbers of these; where spaces were removed; the symbols of each file."""
    number = np.full(256 if symbol_kind(config) == "bytes" else sys.maxunicode + 1, -1, np.int32)
    nothing = np.zeros(0, np.uint8)
    codes, parts, removed, counts = np.zeros(0, np.int64), [nothing], [nothing], [0] * len(files)
    for place, block, spaces in _blocks(files, config, progress):
        new = np.unique(block[number[block] < 0])
        number[new] = np.arange(len(codes), len(codes) + len(new))
        codes = np.concatenate([codes, new])
        parts.append(number[block].astype(np.min_scalar_type(len(codes))))
        removed += [spaces] * config.remove_spaces
        counts[place] += len(block)
    return codes, np.concatenate(parts), np.concatenate(removed), counts


def _blocks(
    files: Sequence[Path], config: TextData, progress: Progress, plain: bool = False
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The number of a file, some of its codes, and 1 where spaces were removed after one; file by file."""
    report = count_progress(progress, total_size(source_state(files)))
    for number, path in enumerate(files):
        for codes, spaces in read_text(path, config, report, plain=plain):
            yield number, codes, spaces


def _lengths(config: TextData, counts: Sequence[int], files: Sequence[Path]) -> Sequence[int]:
    """The lengths of training, validation and test part, for files with so many symbols."""
    if config.format == "ptb":
        if len(files) != 3:
            raise InputError(
                "format ptb reads one directory, or three files (training, validation, test)",
                setting="data.path",
                value=config.path,
            )
        lengths = counts
    else:
        own_split, total = config.format in ("text8", "enwik8"), sum(counts)
        # Exactly the decimal fraction of the setting, not the nearest binary one.
        shares = (Fraction("0.05" if own_split else str(f)) for f in (config.valid_fraction, config.test_fraction))
        valid, test = (int(total * share) for share in shares)
        lengths = [total - valid - test, valid, test]
    if min(lengths) < 2:
        raise InputError(
            f"{names(files)} is too short: training, validation and test need 2 symbols each, and would have "
            f"{', '.join(map(str, lengths))}; give more text"
        )
    return lengths


def _title(config: TextData) -> str:
    title = (
        config.format if config.format not in ("text", "lines") else ", ".join(Path(path).name for path in config.path)
    )
    return f"{title} without spaces" if config.remove_spaces else title
