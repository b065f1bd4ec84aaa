"""The options of commands that only models of text have."""

from __future__ import annotations

import dataclasses
from typing import Literal

from hmrnn.errors import InputError
from hmrnn.utils.options import Options, option


@dataclasses.dataclass(frozen=True)
class Foreign(Options):
    """How commands that read a text take symbols that are foreign to the model."""

    unknown: Literal["replace", "skip", "refuse"] = "replace"
    """What to do with symbols that training never showed and that cannot be written plainly: read them as the model's
    unknown symbol, or as a space if it has none; leave them out; or stop with an error."""


@dataclasses.dataclass(frozen=True)
class Given(Foreign):
    """What ``segment``, ``score`` and ``plot`` share."""

    text: str | None = option(None, "[TEXT]", positional=True, without=("file",))
    """The text. Standard input is read for -, and if neither a text nor --file is given."""


@dataclasses.dataclass(frozen=True)
class Score(Given):
    lines: bool = False
    """Score every line by itself."""


@dataclasses.dataclass(frozen=True)
class Ends(Options):
    """How sure a segmental head must be of the end of a word."""

    threshold: float | None = option(None, "X")
    """End words where the head gives that at least this probability, instead of the most probable words together."""
    prefer: Literal["precision", "recall"] | None = option(None, without=("threshold",))
    """precision: fewer ends, of which more are right (threshold 0.8); recall: more ends, so that fewer are missed
    (0.2)."""

    @property
    def least(self) -> float | None:
        """The threshold, if there is one."""
        return {None: self.threshold, "precision": 0.8, "recall": 0.2}[self.prefer]


_NOT_RAY = ("text", "file", "json", "stream", "streams", "warmup", "format", "lexicon", "by", "unknown")


@dataclasses.dataclass(frozen=True)
class Segment(Ends, Given):
    by: Literal["head", "detectors"] | None = option(None, without=("out",))
    """Where the words (level 1) of a model trained by the preset words come from: its segmental head, which reads the
    whole text and is the default, or its detectors, which read left to right, as --stream FILE does."""
    format: Literal["levels", "words", "spaced"] = option("levels", without=("json", "lexicon", "stream"))
    """levels: all levels; words: the segments of level 1, one per line; spaced: the text with a space between them."""
    lexicon: bool = option(False, without=("json", "stream"))
    """Print the segments of level 1 with their counts, the most frequent first."""
    width: int = option(0, "N", least=0, without=("stream",))
    """Characters per line; 0 takes the width of the terminal."""
    stream: tuple[str, ...] = option((), "FILE", file=True, piped=True, without=("text", "file", "json"))
    """Files of any size to read instead; their segment ends are written to --out. Without a FILE, standard input: each
    line is printed with a space between its words as soon as its line end has come, that is, a line late."""
    ray: tuple[str, ...] = option((), "FILE", file=True, without=_NOT_RAY)
    """Files of lines, or Parquet, to read by the workers of Ray, on this machine or on the cluster at RAY_ADDRESS; the
    words of each row are written to --out. The same command again goes on where it was interrupted."""
    column: str | None = option(None, "NAME", needs="ray")
    """The column of Parquet that has the text; text if not given."""
    workers: int | None = option(None, "N", least=1, needs="ray")
    """Workers of --ray; one for each processor, or GPU, if not given."""
    out: str | None = option(None, "PATH", without=("threshold", "prefer"))
    """The directory for the results of --stream, which for a.txt are a.txt.jsonl, or for those of --ray."""
    streams: int | None = option(None, "N", needs="out")
    """Parts of a file read side by side, 16 if not given."""
    warmup: int | None = option(None, "N", needs="out")
    """Symbols of left context that each part but the first of a file reads before it counts; 500 if not given."""

    def check(self) -> None:
        super().check()
        files = self.ray or (() if self.stream == ("-",) else self.stream)
        if bool(files) != (self.out is not None):
            raise InputError("--stream and --ray write what they find in files to --out; give it with one of them")


@dataclasses.dataclass(frozen=True)
class Generate(Foreign):
    prompt: str = option("", "[PROMPT]", positional=True)
    """The text to continue; it is printed before the continuation."""
    top_k: int | None = option(None, "N")
    """Draw from the N likeliest symbols only."""
    top_p: float | None = option(None, "X")
    """Draw from the likeliest symbols whose probabilities add up to X."""


@dataclasses.dataclass(frozen=True)
class Evaluate(Options):
    plain: bool = option(False, needs="file")
    """Replace accented letters and typographic characters by ASCII before reading; bundled models know only ASCII."""
    streams: int | None = option(None, "N")
    """Parts of the text read side by side, 64 if not given; 1 carries one state across the whole text."""
    warmup: int | None = option(None, "N")
    """Symbols of left context that each part but the first reads before it counts; 500 if not given."""
    symbols: int = option(0, "N", least=0)
    """Read only the first N symbols; 0 reads all."""
    boundaries: bool = False
    """Score the segment ends of every level against spaces and line ends, removed spaces, or lifts of the pen."""
    gold: str | None = option(None, "FILE", needs="boundaries")
    """Score against the ends in this file instead: one per line, the number of symbols before the cut."""
    dynamic: bool = option(False, without=("boundaries", "streams", "warmup"))
    """Dynamic evaluation: the weights follow the gradient of the text that has been read, in one stream."""
    learning_rate: float | None = option(None, "X", needs="dynamic")
    """Step size of dynamic evaluation; 0.0003 if not given."""
    decay: float | None = option(None, "X", needs="dynamic")
    """Dynamic evaluation: fraction of the way back to the trained weights after each segment; 0.003 if not given."""
    segment_length: int | None = option(None, "N", needs="dynamic")
    """Dynamic evaluation: symbols between two updates of the weights; 100 if not given."""


@dataclasses.dataclass(frozen=True)
class Export(Options):
    tokenizer: str | None = option(None, "DIR")
    """Write the words of a model trained by the preset words as a tokenizer, which PreTrainedTokenizerFast and
    Tokenizer.from_file load, to this new directory; alone, or beside --out."""
    count: tuple[str, ...] = option((), "FILE", file=True, needs="tokenizer")
    """Texts whose words are counted for the tokenizer, too, such as those that it is to cut."""


OPTIONS = {
    "evaluate": Evaluate,
    "score": Score,
    "segment": Segment,
    "plot": Given,
    "generate": Generate,
    "export": Export,
    "words": Ends,
}
