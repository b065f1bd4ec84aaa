"""The data that a run reads."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from hmrnn.config.checks import Count, Natural, Needs, Seed, Text
from hmrnn.errors import InputError

Format = Literal[
    "novel", "manual", "text", "lines", "ptb", "text8", "enwik8", "strokes", "iamondb", "handwritten", "labels", "tags",
    "pairs", "numbers", "series",
]  # fmt: skip
BUILT_IN_TEXTS = ("novel", "manual")
"""The formats of texts that need no path."""
STROKE_FORMATS = ("strokes", "iamondb", "handwritten")
"""The formats of pen strokes."""
LABEL_FORMATS = ("labels", "tags", "pairs", "numbers", "series")
"""The formats of labelled sequences; all others but those of strokes are text."""
POOLED_FORMATS = ("labels", "numbers")
"""Those with one answer per sequence, from all of its steps."""
SEQUENCE_FORMATS = ("lines", *STROKE_FORMATS)
"""The formats of which every line is a sequence of its own that is predicted step by step."""
SPLITS = ("train", "valid", "test")
"""The parts of a corpus."""
TEXTS = Needs("data.format", (*BUILT_IN_TEXTS, "text", "lines", "ptb", "text8", "enwik8"))
SERIES = Needs("data.format", ("series",))
Part = Annotated[float, Meta(gt=0, lt=1)]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The data to read."""

    format: Format = "text"
    """novel: The Adventures of Sherlock Holmes, from the package that hmrnn[demo] installs. manual: the Python manual
    inside every CPython. text: UTF-8 files. lines: UTF-8 files of which every line is a sequence, ended by its
    line end; blank lines are left out. ptb: Penn Treebank characters (symbols separated by spaces, _
    for a space, a sentence per line). text8: 27 symbols. enwik8: bytes, split 90M/5M/5M. strokes: pen strokes in .npz,
    .json or .csv files. iamondb: handwriting. handwritten: built-in handwriting. labels: sequences with a label each.
    tags: with a tag per token. pairs: sequences to be turned into others. numbers: with a number each.
    series: numbers over time, of which the next steps are forecast."""
    path: tuple[str, ...] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    bytes: Annotated[bool, Needs("data.format", (*BUILT_IN_TEXTS, "text", "lines"))] = False
    """Model the bytes of the files instead of their characters (format text, lines, novel or manual)."""
    valid_fraction: Part = 0.05
    """Share of the symbols, or lines of strokes, for validation. Not used by formats that come with a split."""
    test_fraction: Part = 0.05
    """Share of the symbols, or lines of strokes, for the test, after the validation part."""
    unseen: Literal["replace", "error"] = "replace"
    """What to do with a validation or test symbol that the training part lacks: replace it by the unknown symbol, or
    stop with an error."""
    min_count: Annotated[Count, TEXTS] = 1
    """Text: read symbols that occur fewer times in the training part as the unknown symbol, which is learned then."""
    symbols: Annotated[Text, TEXTS] = ""
    """Symbols that the vocabulary holds even if the training part lacks them; a byte is the character with its value.
    A run that starts from a model has those of the model here."""
    unknown: Annotated[bool, TEXTS] = False
    """Keep an unknown symbol in the vocabulary even if validation and test part need none."""
    remove_spaces: Annotated[bool, TEXTS] = False
    """Remove the spaces of a text (line ends stay), to see whether the model finds the words."""
    min_points: Annotated[Annotated[int, Meta(ge=2)] | None, Needs("data.format", STROKE_FORMATS)] = None
    """Strokes: leave out lines with fewer points. Default: 300 for iamondb (as in the paper), 2 for others."""
    split: Annotated[Literal["paper", "official"], Needs("data.format", ("iamondb",))] = "paper"
    """iamondb: "paper" draws 90 %, 5 % and 5 % of the lines by a seed; "official" takes the lists of forms."""
    split_seed: Seed = 1
    """Strokes: seed of the split into training, validation and test lines."""
    lines: Annotated[int, Meta(ge=3, le=1_000_000)] = 3000
    """handwritten: number of lines."""
    ahead: Annotated[Count, SERIES] = 10
    """series: how many steps to forecast."""
    window: Annotated[Natural, SERIES] = 0
    """series: how many steps a forecast reads; more than a season. 0: 64, or twice as many as it looks ahead."""
    condition: Annotated[str | None, Needs("data.format", SEQUENCE_FORMATS)] = None
    """lines, strokes: a file with the condition of each line in a row: a class, or numbers separated by commas or
    spaces. FILE:COLUMN takes the column of that name from a .csv or .tsv file."""
    cache: str | None = None
    """iamondb, handwritten: directory in which lines are kept once they were read or drawn. Default: HMRNN_CACHE, or
    ~/.cache/hmrnn."""

    @property
    def reads(self) -> int:
        """series: the steps that a forecast reads."""
        return self.window or max(64, 2 * self.ahead)

    @property
    def is_text(self) -> bool:
        """Whether the next symbol is predicted: not for strokes, nor for labelled sequences."""
        return self.format not in (*STROKE_FORMATS, *LABEL_FORMATS)

    @property
    def is_labelled(self) -> bool:
        """Whether sequences have labels, tags, numbers, a sequence to be turned into, or steps that follow."""
        return self.format in LABEL_FORMATS

    @property
    def has_sequences(self) -> bool:
        """Whether every line is a sequence of its own."""
        return self.format in SEQUENCE_FORMATS

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        valid, test = self.valid_fraction, self.test_fraction
        if valid + test >= 1:
            raise InputError(
                f"and data.test_fraction ({test}) must leave something for training",
                setting="data.valid_fraction",
                value=valid,
            )
        if self.window == 1:
            raise InputError("must be 0 or at least 2", setting="data.window", value=1)
        if self.path and self.format in (*BUILT_IN_TEXTS, "handwritten"):
            raise InputError("is for files, and these data are built in; leave it out", setting="data.path")
