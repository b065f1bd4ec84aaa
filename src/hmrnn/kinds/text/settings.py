"""What a run on text is asked about its data and its model."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from hmrnn.config import DataConfig, ModelConfig
from hmrnn.config.checks import Count, Needs, Text

BUILT_IN_TEXTS = ("novel", "manual")
"""The formats of texts that need no path."""
LINES = Needs("data.format", ("lines",))


@dataclasses.dataclass(frozen=True)
class TextData(DataConfig):
    """The text to read."""

    format: Literal["novel", "manual", "text", "lines", "ptb", "text8", "enwik8"] = "text"
    """novel: The Adventures of Sherlock Holmes, from the package that hmrnn[demo] installs. manual: the Python manual
    inside every CPython. text: UTF-8 files. lines: UTF-8 files of which every line is a sequence, ended by its
    line end; blank lines are left out. ptb: Penn Treebank characters (symbols separated by spaces, _
    for a space, a sentence per line). text8: 27 symbols. enwik8: bytes, split 90M/5M/5M."""
    path: Annotated[tuple[str, ...], Needs("data.format", ("text", "lines", "ptb", "text8", "enwik8"))] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    bytes: Annotated[bool, Needs("data.format", (*BUILT_IN_TEXTS, "text", "lines"))] = False
    """Model the bytes of the files instead of their characters (format text, lines, novel or manual)."""
    unseen: Literal["replace", "error"] = "replace"
    """What to do with a validation or test symbol that the training part lacks: replace it by the unknown symbol, or
    stop with an error."""
    min_count: Count = 1
    """Read symbols that occur fewer times in the training part as the unknown symbol, which is learned then."""
    symbols: Text = ""
    """Symbols that the vocabulary holds even if the training part lacks them; a byte is the character with its value.
    A run that starts from a model has those of the model here."""
    unknown: bool = False
    """Keep an unknown symbol in the vocabulary even if validation and test part need none."""
    remove_spaces: bool = False
    """Remove the spaces of a text (line ends stay), to see whether the model finds the words."""
    condition: Annotated[str | None, LINES] = None
    """lines: a file with the condition of each line in a row: a class, or numbers separated by commas or
    spaces. FILE:COLUMN takes the column of that name from a .csv or .tsv file."""


@dataclasses.dataclass(frozen=True)
class TextModelConfig(ModelConfig):
    """The model: embedding, recurrent network, gated output module, softmax."""

    time: Annotated[Literal["none", "elapsed", "left"], LINES] = "none"
    """lines: the time as a further input: the steps so far, or those that are left, which must be known beforehand."""
