"""The options of commands that only models of handwriting have."""

from __future__ import annotations

import dataclasses
from typing import Literal

from hmrnn.utils.options import OneSequence, Options, option


@dataclasses.dataclass(frozen=True)
class Plot(OneSequence):
    levels: tuple[int, ...] = option((), "LEVEL")
    """Figure 5: the levels to draw; all if not given."""


@dataclasses.dataclass(frozen=True)
class Evaluate(Options):
    boundaries: bool = False
    """Score the segment ends of every level against spaces and line ends, removed spaces, or lifts of the pen."""


@dataclasses.dataclass(frozen=True)
class Generate(Options):
    bias: float | None = option(None, "X")
    """Handwriting: 0 varies as people do, 1 is neat, more is neater; 0 if not given, 1 for a text."""
    text: str | None = option(None, "TEXT", without=("length", "samples"), model="writing-small")
    """Handwriting: what to write, by a model that was trained with model.window; writing-small if none is given."""
    width: int = option(40, "LETTERS", needs="text", least=1, most=1000)
    """The letters of a line of --text, at most."""
    prime: str | None = option(None, "FILE", file=True)
    """Handwriting: a file of strokes; the new lines continue one of its lines, in its style. With --text the file has
    to hold what that line says."""
    line: str | None = option(None, "LINE", needs="prime")
    """The line of --prime to continue, by its name or number; the first if not given."""
    out: str | None = option(None, "FILE")
    """Handwriting: the file to write: .svg, .gif, .png or .pdf for a picture, .npz, .json or .csv for strokes;
    writing.svg if not given."""
    seconds: float = option(0.0, "X", least=0, most=86_400)
    """Handwriting: length of the animation in an .svg or .gif; 0 gives a still .svg, and 8 seconds of .gif."""


@dataclasses.dataclass(frozen=True)
class Data(Options):
    split: Literal["paper", "official"] = "paper"
    """Which split of iamondb to show."""
    archive: str | None = option(None, "FILE")
    """Write all lines of a corpus of strokes to this file, a compact .npz archive."""


@dataclasses.dataclass(frozen=True)
class Demo(Options):
    handwriting: bool = False
    """Handwriting instead of text."""


@dataclasses.dataclass(frozen=True)
class Read(Options):
    beam: int = option(10, "N", least=1, most=1000)
    """Pairs and handwriting: width of the beam search; 1 takes the likeliest symbol at each step."""


OPTIONS = {
    "evaluate": Evaluate, "score": OneSequence, "segment": OneSequence, "plot": Plot, "generate": Generate,
    "data": Data, "demo": Demo,
}  # fmt: skip
