"""Lines of a text as sequences of their own, each ended by its line end, and padded batches of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from hmrnn.config import SPLITS, ModelConfig
from hmrnn.errors import InputError
from hmrnn.kinds.text.corpus import Corpus
from hmrnn.reading.batches import Batches
from hmrnn.reading.conditions import encode
from hmrnn.reading.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """The lines of a part of a corpus that are not blank; each holds its symbols and the line end."""

    symbols: np.ndarray
    starts: np.ndarray
    """(n,): the position of the first symbol of each line."""
    ends: np.ndarray
    """(n,): the position after its line end."""
    conditions: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.starts


def end_symbol(vocabulary: Vocabulary) -> int:
    """The index of the line end."""
    if ord("\n") not in vocabulary.values:
        raise InputError(
            "there is no line end in the training part; give a text of several lines",
            setting="data.format",
            value="lines",
        )
    return vocabulary.values.index(ord("\n"))


def all_lines(symbols: np.ndarray, end: int, condition: str | None = None) -> Lines:
    """The lines of a text that are not blank, under one condition; the last may lack its line end."""
    if len(symbols) and symbols[-1] != end:
        symbols = np.append(symbols, np.array(end, symbols.dtype))
    ends = np.flatnonzero(symbols == end) + 1
    starts = np.concatenate([[0], ends])[: len(ends)]
    kept = ends - starts > 1
    if not kept.any():
        raise InputError("all lines of the text are blank; there is nothing to predict")
    return Lines(symbols, starts[kept], ends[kept], None if condition is None else (condition,) * int(kept.sum()))


def split_lines(corpus: Corpus) -> dict[str, Lines]:
    """The lines of each part; a line that a cut between two parts runs through belongs to neither."""
    end, parts = end_symbol(corpus.vocabulary), {}
    number, broken = 0, False  # of the line at the start of a part; whether it began in the part before
    given = corpus.conditions
    for name in SPLITS:
        symbols: np.ndarray = getattr(corpus, name)
        ends = np.flatnonzero(symbols == end) + 1
        starts = np.concatenate([[0], ends])[: len(ends)]
        numbers = number + np.arange(len(ends))
        kept = ends - starts > 1
        if broken:
            kept[:1] = False
        conditions = tuple(given[n] for n in numbers[kept]) if given and numbers.max(initial=0) < len(given) else None
        if given and conditions is None:
            raise InputError(
                f"has {len(given)} rows, but the text has more lines; give one row per line", setting="data.condition"
            )
        if not kept.any():
            raise InputError(
                f"no whole line of {corpus.name} is left for the {name} part; give more lines, or change this and "
                "data.test_fraction",
                setting="data.valid_fraction",
            )
        parts[name] = Lines(symbols, starts[kept], ends[kept], conditions)
        number, broken = number + len(ends), bool(len(symbols)) and symbols[-1] != end
    if given and len(given) != number + broken:
        raise InputError(
            f"has {len(given)} rows, but the text has {number + broken} lines; give one row per line",
            setting="data.condition",
        )
    return parts


class LineBatches(Batches):
    """Batches of lines (T, B) int64. A line is read after a line end, and predicted up to its own."""

    def __init__(self, lines: Lines, end: int, model: ModelConfig, batch_size: int, *, seed: int | None = None) -> None:
        if model.conditioned and lines.conditions is None:
            raise InputError(
                "this model is trained with a condition, and the lines have none", setting="data.condition"
            )
        conditions = encode(lines.conditions, model) if lines.conditions is not None else None
        super().__init__(lines.lengths, batch_size, seed, conditions)
        self.lines, self.end = lines, end

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        symbols = self.lines.symbols[self.lines.starts[index] : self.lines.ends[index]].astype(np.int64)
        return np.concatenate([[self.end], symbols[:-1]]), symbols
