"""What a run on pen strokes is asked about its data and its model."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from hmrnn.config import DataConfig, ModelConfig
from hmrnn.config.checks import Count, Needs, Seed, Share, Text

WINDOW = Needs("model.window", ("soft", "detector"))


@dataclasses.dataclass(frozen=True)
class LineData(DataConfig):
    """The lines of pen strokes to read."""

    format: str = ""
    path: Annotated[tuple[str, ...], Needs("data.format", ("strokes", "iamondb", "strokes-read", "iamondb-read"))] = ()
    """Files, or one directory. Files that end in .xz, .gz or .bz2 are decompressed while they are read."""
    min_points: Annotated[int, Meta(ge=2)] | None = None
    """Leave out lines with fewer points. Default: 300 for iamondb (as in the paper), 2 for others."""
    split: Annotated[Literal["paper", "official"], Needs("data.format", ("iamondb", "iamondb-read"))] = "paper"
    """iamondb: "paper" draws 90 %, 5 % and 5 % of the lines by a seed; "official" takes the lists of forms."""
    split_seed: Seed = 1
    """Seed of the split into training, validation and test lines."""
    lines: Annotated[int, Meta(ge=3, le=1_000_000)] = 3000
    """handwritten and fonts: number of lines."""
    words: Annotated[Count, Needs("data.format", ("fonts", "fonts-read"))] = 5
    """fonts: words of a line, at most. A window learns to follow short lines sooner."""
    condition: str | None = None
    """A file with the condition of each line in a row: a class, or numbers separated by commas or spaces. FILE:COLUMN
    takes the column of that name from a .csv or .tsv file."""
    cache: str | None = None
    """iamondb, handwritten, fonts: directory in which lines are kept once they were read or drawn. Default:
    HMRNN_CACHE, or ~/.cache/hmrnn."""


@dataclasses.dataclass(frozen=True)
class StrokeData(LineData):
    """The lines of pen strokes to read."""

    format: Literal["strokes", "iamondb", "handwritten", "fonts"] = "strokes"
    """strokes: .npz, .json or .csv files. iamondb: IAM-OnDB. handwritten: built-in handwriting. fonts: any text, in
    built-in styles, which are the conditions."""


@dataclasses.dataclass(frozen=True)
class StrokeModelConfig(ModelConfig):
    """The model: recurrent network, gated output module, mixture of Gaussians."""

    mixtures: Count = 20
    """Number of Gaussians in the prediction of the next point."""
    window: Literal["none", "soft", "detector"] = "none"
    """Write a text: an LSTM as large as the first layer moves a window over its letters. soft: at every point.
    detector: only where a detector of its own fires. Lines without a text that fits them are left out."""
    window_components: Annotated[Count, WINDOW] = 10
    """Number of components of the window."""
    window_width: Annotated[Count, WINDOW] = 32
    """Size of the embedding of a letter, which is what the window shows."""
    window_points: Annotated[float, Meta(ge=1), WINDOW] = 20.0
    """Points that a letter takes before training."""
    alphabet: Annotated[tuple[Text, ...], WINDOW] = ()
    """The symbols of the texts; those of the training part if none are given."""
    halt: bool = False
    """Predict with every point whether it is the last, so that generated lines end by themselves."""


@dataclasses.dataclass(frozen=True)
class TranscriptData(LineData):
    """The lines of pen strokes to read, with what they say."""

    format: Literal["strokes-read", "iamondb-read", "handwritten-read", "fonts-read"] = "strokes-read"
    """strokes-read: .npz or .json files with texts. iamondb-read: IAM-OnDB. handwritten-read: built-in handwriting.
    fonts-read: any text, in built-in styles."""
    distort: Share = 0.0
    """Stretch and slant each line of the training part anew in every epoch, by numbers of this deviation."""


@dataclasses.dataclass(frozen=True)
class TranscriptModelConfig(ModelConfig):
    """The model: recurrent network, gated output module, the probabilities of letters."""

    bidirectional: bool = True
    """Read in both directions, with a network for each."""
    stack: Annotated[int, Meta(ge=1, le=100)] = 3
    """Points that are read at a step."""
    alphabet: tuple[Text, ...] = ()
    """The symbols of the texts; those of the training part if none are given."""

    @property
    def directions(self) -> int:
        return 1 + self.bidirectional
