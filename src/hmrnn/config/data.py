"""The data that a run reads."""

from __future__ import annotations

import dataclasses
from typing import Literal

from hmrnn.config import checks
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


MOST_LINES = 1_000_000


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
    bytes: bool = False
    """Model the bytes of the files instead of their characters (format text, lines, novel or manual)."""
    valid_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, for validation. Not used by formats that come with a split."""
    test_fraction: float = 0.05
    """Share of the symbols, or lines of strokes, for the test, after the validation part."""
    unseen: Literal["replace", "error"] = "replace"
    """What to do with a validation or test symbol that the training part lacks: replace it by the unknown symbol, or
    stop with an error."""
    min_count: int = 1
    """Text: read symbols that occur fewer times in the training part as the unknown symbol, which is learned then."""
    symbols: str = ""
    """Symbols that the vocabulary holds even if the training part lacks them; a byte is the character with its value.
    A run that starts from a model has those of the model here."""
    unknown: bool = False
    """Keep an unknown symbol in the vocabulary even if validation and test part need none."""
    remove_spaces: bool = False
    """Remove the spaces of a text (line ends stay), to see whether the model finds the words."""
    min_points: int | None = None
    """Strokes: leave out lines with fewer points. Default: 300 for iamondb (as in the paper), 2 for others."""
    split: Literal["paper", "official"] = "paper"
    """iamondb: "paper" draws 90 %, 5 % and 5 % of the lines by a seed; "official" takes the lists of forms."""
    split_seed: int = 1
    """Strokes: seed of the split into training, validation and test lines."""
    lines: int = 3000
    """handwritten: number of lines."""
    ahead: int = 10
    """series: how many steps to forecast."""
    window: int = 0
    """series: how many steps a forecast reads; more than a season. 0: 64, or twice as many as it looks ahead."""
    condition: str | None = None
    """lines, strokes: a file with the condition of each line in a row: a class, or numbers separated by commas or
    spaces. FILE:COLUMN takes the column of that name from a .csv or .tsv file."""
    cache: str | None = None
    """Directory of encoded corpora. Default: HMRNN_CACHE, or ~/.cache/hmrnn."""

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
        if not 0 < valid < 1 or not 0 < test < 1 or valid + test >= 1:
            raise InputError(
                f"must be positive, as data.test_fraction ({test}), and both must leave something for training",
                setting="data.valid_fraction",
                value=valid,
            )
        if self.min_count < 1:
            raise InputError("must be at least 1", setting="data.min_count", value=self.min_count)
        if self.min_points is not None and self.min_points < 2:
            raise InputError(
                "must be at least 2: one to read, one to predict", setting="data.min_points", value=self.min_points
            )
        if not 3 <= self.lines <= MOST_LINES:
            raise InputError(
                f"must lie between 3 (training, validation, test) and {MOST_LINES}",
                setting="data.lines",
                value=self.lines,
            )
        if self.ahead < 1 or self.window == 1 or self.window < 0:
            raise InputError(
                f"must be at least 1, and data.window 0 or at least 2; got {self.ahead} and {self.window}",
                setting="data.ahead",
            )
        checks.seed("data", self, "split_seed")
        built_in = self.format in (*BUILT_IN_TEXTS, "handwritten")
        for name, wrong, formats in (
            ("path", self.path and built_in, "files, and these data are built in"),
            (
                "bytes",
                self.bytes and self.format not in (*BUILT_IN_TEXTS, "text", "lines"),
                "data.format text, lines, novel or manual",
            ),
            ("min_count", self.min_count > 1 and not self.is_text, "text"),
            ("symbols", self.symbols and not self.is_text, "text"),
            ("unknown", self.unknown and not self.is_text, "text"),
            ("remove_spaces", self.remove_spaces and not self.is_text, "text"),
            ("min_points", self.min_points is not None and self.format not in STROKE_FORMATS, "strokes"),
            ("split", self.split == "official" and self.format != "iamondb", "data.format iamondb"),
            ("ahead", self.ahead != DataConfig.ahead and self.format != "series", "series"),
            ("window", self.window and self.format != "series", "series"),
            ("condition", self.condition and not self.has_sequences, "data.format lines and for strokes"),
        ):
            if wrong:
                raise InputError(
                    f"is for {formats}; data.format is {self.format}, so leave it out", setting=f"data.{name}"
                )
