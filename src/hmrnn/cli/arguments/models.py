"""The arguments of the commands that use a model."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar, Literal

from hmrnn.cli.arguments.base import Arguments, ModelArguments, TextArguments, called, check_files, check_folder
from hmrnn.cli.parse import flag, option
from hmrnn.errors import InputError
from hmrnn.pretrained import bundled


@dataclasses.dataclass(frozen=True)
class EvaluateArguments(ModelArguments):
    """Bits per character of a model on its own corpus or on other files; boundary rates, updates and multiply-adds.

    hmrnn evaluate -m runs/book
    hmrnn evaluate -m runs/book --split valid --boundaries
    hmrnn evaluate --file other.txt --plain
    """

    FLAGS: ClassVar = {"data.path": "--path or --file"}
    split: Literal["train", "valid", "test"] | None = None
    """Part of the model's own corpus to read; test if not given."""
    file: tuple[str, ...] = option((), "FILE", file=True)
    """Files to read instead of the model's own corpus, in the format it was trained on."""
    plain: bool = option(False, needs="file", reads="text")
    """Replace accented letters and typographic characters by ASCII before reading; bundled models know only ASCII."""
    condition: str | None = option(None, "CLASS", needs="file")
    """For a model that was trained with data.condition: that of --file, a class, or numbers separated by commas."""
    path: tuple[str, ...] = option((), "PATH", file=True)
    """Where the model's own corpus is now, if it has moved since training."""
    streams: int | None = option(None, "N", reads="text")
    """Parts of the text read side by side, 64 if not given; 1 carries one state across the whole text."""
    warmup: int | None = option(None, "N", reads="text")
    """Symbols of left context that each part but the first reads before it counts; 500 if not given."""
    symbols: int = option(0, "N", reads="text")
    """Read only the first N symbols; 0 reads all."""
    boundaries: bool = False
    """Score the segment ends of every level: against spaces and line ends, removed spaces, or lifts of the pen."""
    gold: str | None = option(None, "FILE", needs="boundaries", reads="text")
    """Score against the ends in this file instead: one per line, the number of symbols before the cut."""
    dynamic: bool = option(False, reads="text")
    """Dynamic evaluation: the weights follow the gradient of the text that has been read."""
    learning_rate: float | None = option(None, "X", needs="dynamic")
    """Step size of dynamic evaluation; 0.0003 if not given."""
    decay: float | None = option(None, "X", needs="dynamic")
    """Dynamic evaluation: fraction of the way back to the trained weights after each segment; 0.003 if not given."""
    segment_length: int | None = option(None, "N", needs="dynamic")
    """Dynamic evaluation: symbols between two updates of the weights; 100 if not given."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        super().check()
        own = self.file or self.path or self.model not in bundled.names()
        if not own and not bundled.comes_with_corpus(self.model):
            raise InputError(f"{self.model} comes without its corpus: name a text by --file, or a run of yours by -m")
        if self.symbols < 0:
            raise InputError(f"--symbols must not be negative; got {self.symbols}")
        if self.file and (self.split or self.path):
            one = "--split" if self.split else "--path"
            raise InputError(f"{one} is about the model's own corpus, and --file names another text; give one of them")
        if self.dynamic and self.boundaries:
            raise InputError("--boundaries scores the model as trained, not under --dynamic; give one of them")
        if self.dynamic and (self.streams not in (None, 1) or self.warmup is not None):
            one = "--warmup" if self.streams in (None, 1) else f"--streams {self.streams}"
            raise InputError(f"--dynamic reads the text in one stream from its start; leave out {one}")


@dataclasses.dataclass(frozen=True)
class ScoreArguments(TextArguments):
    """Bits per character of a text: each character is predicted from those before it.

    hmrnn score "It was the best of times."
    hmrnn score -m runs/book --lines --file book.txt
    """

    lines: bool = option(False, reads="text")
    """Score every line by itself."""
    json: bool = False
    """Print JSON; with --lines, one object per line."""


@dataclasses.dataclass(frozen=True)
class SegmentArguments(TextArguments):
    """Show the segments that a model finds in a text, level by level.

    hmrnn segment "When the boats came back in the evening"
    hmrnn segment -m runs/book --file book.txt --format words
    hmrnn segment -m runs/book --stream book.txt --out found
    """

    line: str | None = option(None, "LINE", reads="strokes")
    """Handwriting: the line of --file, or of the validation part, by its name or number; the first if not given."""
    json: bool = False
    """Print JSON: segment ends per level, operations, probabilities, norms, bits of each symbol."""
    by: Literal["head", "detectors"] | None = option(None, reads="text")
    """Where the words (level 1) of a model trained by the preset words come from: its segmental head, which reads the
    whole text and is the default, or its detectors, which read left to right, as --stream does."""
    format: Literal["levels", "words", "spaced"] = option("levels", reads="text")
    """levels: all levels; words: the segments of level 1, one per line; spaced: the text with a space between them."""
    lexicon: bool = option(False, reads="text")
    """Print the segments of level 1 with their counts, the most frequent first."""
    width: int = option(0, "N", reads="text")
    """Characters per line; 0 takes the width of the terminal."""
    stream: tuple[str, ...] = option((), "FILE", file=True, reads="text")
    """Files of any size to read instead; their segment ends are written to --out."""
    out: str | None = option(None, "PATH", needs="stream")
    """The directory for the results of --stream: those for a.txt are in a.txt.jsonl."""
    streams: int | None = option(None, "N", needs="stream")
    """Parts of a file read side by side, 16 if not given."""
    warmup: int | None = option(None, "N", needs="stream")
    """Symbols of left context that each part but the first of a file reads before it counts; 500 if not given."""

    def check(self) -> None:
        super().check()
        if self.width < 0:
            raise InputError(f"--width must be 0 or more; got {self.width}")
        if self.json + self.lexicon + (self.format != "levels") > 1:
            raise InputError("--json, --lexicon and --format each print something else; give one of them")
        if not self.stream:
            return
        if self.out is None or self.text is not None or self.file is not None:
            raise InputError("--stream reads files and needs --out, a directory; give no text and no --file")
        if self.unknown == "skip":
            raise InputError("--unknown skip would move the segment ends of --stream; use replace or refuse")
        for field in self.given():
            if field.name in ("line", "json", "width", "by", "format", "lexicon"):
                raise InputError(f"{flag(field.name)} has no effect with --stream; leave it out")


@dataclasses.dataclass(frozen=True)
class GenerateArguments(ModelArguments):
    """Continue a prompt, symbol by symbol; or write lines of handwriting.

    hmrnn generate "The river " --length 300
    hmrnn generate -m runs/book "It was " --temperature 0.7 --samples 2
    hmrnn generate -m handwriting-small --bias 1 --out lines.svg
    """

    prompt: str = option("", "[PROMPT]", positional=True, reads="text")
    """The text to continue; it is printed before the continuation."""
    unknown: Literal["replace", "skip", "refuse"] = option("replace", reads="text")
    """What to do with symbols that training never showed and that cannot be written plainly: read them as the model's
    unknown symbol, or as a space if it has none; leave them out; or stop with an error."""
    length: int | None = None
    """Symbols or points to generate, 500 symbols or 600 points if not given; a model of lines (data.format lines), or
    of strokes with model.halt, may end earlier."""
    condition: str | None = option(None, "CLASS")
    """For a model that was trained with data.condition: the class, or numbers separated by commas."""
    temperature: float | None = None
    """Below 1 is safer, above 1 more varied, 0 always takes the likeliest; 0.8 for text, 1 for handwriting if not
    given."""
    top_k: int | None = option(None, "N", reads="text")
    """Draw from the N likeliest symbols only."""
    top_p: float | None = option(None, "X", reads="text")
    """Draw from the likeliest symbols whose probabilities add up to X."""
    seed: int | None = None
    """Seed of the random draws: the same seed gives the same output."""
    bias: float = option(0.0, "X", reads="strokes")
    """Handwriting: 0 varies as people do, 1 is neat, more is neater."""
    samples: int | None = option(None, "N")
    """Number of texts that continue the prompt, or of lines of handwriting; 1 if not given."""
    prime: str | None = option(None, "FILE", file=True, reads="strokes")
    """Handwriting: a file of strokes; the new lines continue one of its lines, in its style."""
    line: str | None = option(None, "LINE", reads="strokes", needs="prime")
    """The line of --prime to continue, by its name or number; the first if not given."""
    out: str | None = option(None, "FILE", reads="strokes")
    """Handwriting: the file to write: .svg, .gif, .png or .pdf for a picture, .npz, .json or .csv for strokes;
    writing.svg if not given."""
    seconds: float = option(0.0, "X", reads="strokes")
    """Handwriting: length of the animation in an .svg or .gif; 0 gives a still .svg, and 8 seconds of .gif."""


@dataclasses.dataclass(frozen=True)
class PredictArguments(Arguments):
    """Answer sequences with a model made by hmrnn train labels|tags|pairs|numbers, or forecast with one of series.

    hmrnn predict -m runs/labels new.txt
    hmrnn predict -m runs/labels reviews.tsv --explain
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used) or a checkpoint directory."""
    file: str = option("-", "[FILE]", positional=True)
    """A file as for training, with answers or without (.tsv, .csv, .jsonl, .conll), or with a sequence per line; - or
    nothing reads lines from standard input. With answers, the share of right ones is reported, too;
    of numbers R² and the errors."""
    explain: bool = False
    """Show the probabilities, and the segments that decided."""
    beam: int = option(1, "N")
    """Pairs: width of the beam search; 1 takes the likeliest symbol at each step."""
    json: bool = False
    """Print a JSON object per sequence: answer, probabilities, segment ends and weights."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""

    def check(self) -> None:
        super().check()
        if self.file != "-" and " " in self.file and not os.path.exists(os.path.expanduser(self.file)):
            raise InputError(f"there is no file {self.file!r}; give a text on standard input, a line per sequence")
        if self.file != "-":
            check_files(self.file)
        if self.beam < 1:
            raise InputError(f"--beam must be at least 1; got {self.beam}")
        if self.explain and self.json:
            raise InputError("--json holds all that --explain shows; give one of them")


@dataclasses.dataclass(frozen=True)
class PlotArguments(TextArguments):
    """Draw the paper's Figure 3 or 4 for a text, its Figure 5 for handwriting, or the training curves of a run.

    hmrnn plot "The river flows through the old town." --figure segments --out segments.png
    hmrnn plot -m runs/book --figure curves --out curves.svg
    """

    figure: Literal["3", "4", "5", "segments", "timescales", "curves"] | None = None
    """3: boundaries under the text. 4: with a heat map of the norms. 5: handwriting, coloured by segment.
    segments: the text as coloured blocks. timescales: lengths of the segments of each level. curves: loss and boundary
    rates over training. If not given, 4 for text and 5 for handwriting."""
    line: str | None = option(None, "LINE", reads="strokes")
    """Figure 5: the line of --file, or of the validation part, by its name or number; the first if not given."""
    levels: tuple[int, ...] = option((), "LEVEL", reads="strokes")
    """Figure 5: the levels to draw; all if not given."""
    out: str = option("figure.png", "FILE")
    """File to write: .png, .svg or .pdf."""

    def check(self) -> None:
        super().check()
        check_folder("--out", self.out)
        if self.figure == "curves":
            for field in self.given():
                if field.name in ("text", "file", "unknown", "condition", "line", "levels"):
                    raise InputError(f"{called(field)} has no effect with --figure curves; leave it out")


EXPLORED = tuple(bundled.names())


@dataclasses.dataclass(frozen=True)
class ExploreArguments(Arguments):
    """Serve a page on this machine: type a text and see its segments, compare models, watch one write.

    hmrnn explore
    hmrnn explore -m runs/book english-small --port 9000
    """

    model: tuple[str, ...] = option(EXPLORED, "MODEL", "-m")
    """One or more run directories, checkpoint directories or bundled models; the page can reach no others. Without -m
    the page also has runs/demo, if hmrnn demo has made it."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address but a loopback address lets others connect."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    name: tuple[str, ...] = option((), "NAME")
    """Further host names of the page, such as this machine's; https://NAME for that of a proxy with TLS."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""

    def check(self) -> None:
        super().check()
        if not self.model:
            raise InputError(
                f"hmrnn explore needs a model: name one or more with -m, such as -m {bundled.DEFAULT} runs/demo"
            )
        if not 0 <= self.port < 1 << 16:
            raise InputError(f"--port must lie between 0 and 65535; got {self.port}")


@dataclasses.dataclass(frozen=True)
class ExportArguments(Arguments):
    """Write a model to a directory of its own: weights, config, vocabulary and a card, without training state.

    hmrnn export -m runs/book --out book-small --half
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
    out: str = option(dataclasses.MISSING, "PATH")
    """The directory to write, which must not exist."""
    half: bool = False
    """Round the weights to 16 bits, which halves the size."""
