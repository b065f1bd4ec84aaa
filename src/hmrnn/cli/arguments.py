"""What each command takes: a dataclass per command, whose fields are its flags.

``check`` of each finds what can be found without torch, which takes seconds to import: the command line calls it first.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import tyro

from hmrnn.cli import given_text
from hmrnn.config import Config
from hmrnn.errors import InputError, did_you_mean, refuse
from hmrnn.pretrained import bundled


def _named(value: str, *aliases: str) -> Any:
    """How the help calls the value of a flag; that none is given if none is given need not be said."""

    def default(shown: str) -> str:
        return "" if shown in ("None", "") else f"(default: {shown})"

    return tyro.conf.arg(metavar=value, aliases=aliases, help_behavior_hint=default)


@dataclasses.dataclass(frozen=True)
class TrainArguments(Config):
    """Train a model."""

    out: Annotated[str | None, _named("PATH")] = None
    """Directory of the run; runs/NAME if not given."""
    resume: bool = False
    """Go on with the run in that directory, exactly where it was."""
    overwrite: bool = False
    """Replace the run in that directory."""
    report: bool = True
    """Write report.html when training is done."""

    def check(self) -> None:
        super().check()
        _check_files(self.data.path)


@dataclasses.dataclass(frozen=True)
class ModelArguments:
    model: Annotated[str, _named("MODEL", "-m")] = bundled.DEFAULT
    """A run directory (its best checkpoint is taken), a checkpoint directory, or a model that comes with hmrnn."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""

    def check(self) -> None:
        """Raise InputError on what cannot work."""
        bundled.find(self.model)


@dataclasses.dataclass(frozen=True)
class EvaluateArguments(ModelArguments):
    """Bits per character of a model on its own corpus or on other files, with boundary rates and updates saved."""

    split: Annotated[Literal["train", "valid", "test"] | None, _named("{train,valid,test}")] = None
    """Part of the model's corpus to read, if no file is given; test if not given."""
    file: Annotated[tuple[str, ...], _named("FILE ...")] = ()
    """Files to read instead, in the format the model was trained on."""
    plain: bool = False
    """Of --file: take accents off and write typographic signs in ASCII first; english-small knows no others."""
    path: Annotated[tuple[str, ...], _named("PATH ...")] = ()
    """Where the corpus is now, if it has moved since training."""
    streams: Annotated[int | None, _named("N")] = None
    """Parts read side by side, 64 if not given; 1 carries one state across the whole text, as --dynamic does."""
    warmup: Annotated[int | None, _named("N")] = None
    """Symbols of left context each part but the first reads, uncounted, to build up its state; 500 if not given."""
    symbols: int = 0
    """Read only so many symbols; 0: all."""
    boundaries: bool = False
    """Score the segment ends of every level against gold ones: spaces and line ends, or spaces that were removed."""
    gold: Annotated[str | None, _named("FILE")] = None
    """With --boundaries: a file of gold ends instead, one per line: the count of symbols before the cut."""
    dynamic: bool = False
    """Dynamic evaluation: the weights follow the gradient of the text that has been read."""
    learning_rate: Annotated[float | None, _named("X")] = None
    """With --dynamic: how far a weight goes after each segment, 0.0003 if not given."""
    decay: Annotated[float | None, _named("X")] = None
    """With --dynamic: share of the way back to the trained weights after each segment, 0.003 if not given."""
    segment_length: Annotated[int | None, _named("N")] = None
    """With --dynamic: symbols between two changes of the weights, 100 if not given."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        super().check()
        if self.model in set(bundled.names()) - {bundled.HANDWRITING} and not (self.file or self.path):
            raise InputError(f"{self.model} comes without its corpus: name a text by --file, or a run of yours by -m")
        if self.symbols < 0:
            raise InputError(f"--symbols must not be negative; got {self.symbols}")
        if self.gold and not self.boundaries:
            raise InputError("--gold is for --boundaries; give both")
        if self.file:
            why = "is about the model's own corpus, and --file names another text; give one of them"
            refuse({"--split": self.split, "--path": self.path}, why)
        if self.plain and not self.file:
            raise InputError("--plain is for --file: a model's own corpus is read as it was in training")
        _check_files((*self.file, *self.path))


@dataclasses.dataclass(frozen=True)
class TextArguments(ModelArguments):
    text: Annotated[tyro.conf.Positional[str | None], _named("[TEXT]")] = None
    """The text; standard input is read if neither it nor --file is given."""
    file: Annotated[str | None, _named("FILE")] = None
    """A file to read the text from, perhaps packed; a last line end is left out, as on standard input."""
    plain: bool = False
    """Take accents off and write typographic signs in ASCII first; english-small knows no others."""

    @property
    def needs_text(self) -> bool:
        """Whether there must be a text, if the model is one of text."""
        return True

    def check(self) -> None:
        super().check()
        if self.text is not None and self.file is not None:
            raise InputError("give a text or --file, not both")
        if self.file is not None:
            _check_files([self.file])
        elif self.needs_text and self.text is None and self.model in bundled.names() and sys.stdin.isatty():
            raise given_text.missing()

    def read(self, kind: str = "characters") -> str:
        """The text that was meant, for a vocabulary of that kind."""
        if self.text is None:
            text = given_text.read(self.file, of_bytes=kind == "bytes")
        else:
            text = self.text if kind == "bytes" else given_text.check_characters(self.text)
        if self.plain:
            from hmrnn.data.text.plain import plain

            return plain(text)
        return text


@dataclasses.dataclass(frozen=True)
class ScoreArguments(TextArguments):
    """Bits per character of a text: how many a model needs for it, each character predicted from those before it."""

    lines: bool = False
    """Score every line by itself, from the zero state."""
    json: bool = False
    """Print JSON; with --lines, an object for each line."""


@dataclasses.dataclass(frozen=True)
class SegmentArguments(TextArguments):
    """Show the segments that a model finds in a text, level by level."""

    line: Annotated[str | None, _named("LINE")] = None
    """Of handwriting: which line of --file, or of the validation part, by its name or counted from 1; the first."""
    json: bool = False
    """Print JSON: segment ends per level, operations, probabilities, norms."""
    width: int = 0
    """Characters per line; 0: as wide as the terminal."""
    stream: Annotated[tuple[str, ...], _named("FILE ...")] = ()
    """Files of any size to read instead; their segment ends are written to --out."""
    out: Annotated[str | None, _named("PATH")] = None
    """With --stream: a folder; for a.txt it will hold a.txt.jsonl."""
    streams: Annotated[int | None, _named("N")] = None
    """With --stream: parts read side by side, 16 if not given; 1 carries one state from end to end of each file."""
    warmup: Annotated[int | None, _named("N")] = None
    """With --stream: symbols of left context that each part but a file's first begins with; 500 if not given."""
    resume: bool = False
    """With --stream: go on in --out, exactly where a signal or a crash stopped."""

    @property
    def needs_text(self) -> bool:
        return not self.stream

    def check(self) -> None:
        super().check()
        if self.stream:
            if self.out is None or self.text is not None or self.file is not None:
                raise InputError("--stream reads files and needs --out, a folder; give no text and no --file")
            of_text = {"--line": self.line is not None, "--json": self.json, "--width": self.width}
            refuse(of_text, "is of no use to --stream; leave it out")
        else:
            numbers = {"--streams": self.streams is not None, "--warmup": self.warmup is not None}
            refuse({"--out": self.out is not None, "--resume": self.resume, **numbers}, "is for --stream; give both")
        _check_files(self.stream)


@dataclasses.dataclass(frozen=True)
class GenerateArguments(ModelArguments):
    """Go on from a prompt, symbol by symbol; or write lines of handwriting."""

    prompt: Annotated[tyro.conf.Positional[str], _named("[PROMPT]")] = ""
    """What to go on from."""
    plain: bool = False
    """Take accents off the prompt and write typographic signs in ASCII first; english-small knows no others."""
    length: Annotated[int | None, _named("N")] = None
    """Symbols or points to generate; 500 symbols or 600 points if not given."""
    temperature: Annotated[float | None, _named("X")] = None
    """Below 1 safer, above 1 wilder; 0 always takes the likeliest. 0.8 for text and 1 for handwriting if not given."""
    top_k: Annotated[int | None, _named("N")] = None
    """Draw from the k likeliest symbols only."""
    top_p: Annotated[float | None, _named("X")] = None
    """Draw from the likeliest symbols that together have this probability."""
    seed: Annotated[int | None, _named("N")] = None
    """Of what is drawn: the same seed gives the same output."""
    bias: float = 0.0
    """Of handwriting: 0 varies as people do, 1 is neat, more is neater."""
    samples: Annotated[int | None, _named("N")] = None
    """Of handwriting: lines to write, one below the other; 1 if not given."""
    prime: Annotated[str | None, _named("FILE")] = None
    """Of handwriting: a file of strokes; each line goes on from one of it, in its style."""
    line: Annotated[str | None, _named("LINE")] = None
    """With --prime: which line of the file, by its name or counted from 1; the first if not given."""
    out: Annotated[str | None, _named("FILE")] = None
    """Of handwriting: the file to write: .svg, .gif, .png or .pdf for a picture; .npz, .json or .csv for strokes.
    writing.svg if not given."""
    seconds: float = 0.0
    """Of handwriting: an .svg or .gif writes itself in this time; 0: an .svg is still, a .gif takes 8 seconds."""

    def check(self) -> None:
        super().check()
        if self.prime is not None:
            _check_files([self.prime])


@dataclasses.dataclass(frozen=True)
class PlotArguments(TextArguments):
    """Draw the paper's Figure 3 or 4 for a text, its Figure 5 for handwriting, or the training curves of a run."""

    figure: Annotated[Literal["3", "4", "5", "timescales", "curves"] | None, _named("FIGURE")] = None
    """3: boundaries under the text. 4: with the heat map of the norms. 5: handwriting, coloured by its segments.
    timescales: how long the segments of each level are. curves: bits (nats of handwriting) and boundary rates over
    time. If not given, 4 for text and 5 for handwriting."""
    line: Annotated[str | None, _named("LINE")] = None
    """Of Figure 5: which line of --file, or else of the validation part, by its name or counted from 1; the first."""
    levels: Annotated[tuple[int, ...], _named("LEVEL ...")] = ()
    """Of Figure 5: the levels whose segments are drawn; all of them if not given."""
    out: str = "figure.png"
    """File to write: .png, .svg or .pdf."""

    @property
    def needs_text(self) -> bool:
        return self.figure != "curves"

    def check(self) -> None:
        super().check()
        if self.figure == "curves":
            of_text = {"a text": self.text is not None, "--file": self.file, "--plain": self.plain}
            refuse({**of_text, **self.of_figure_5}, "is of no use to --figure curves; leave it out")

    @property
    def of_figure_5(self) -> dict[str, object]:
        """The flags that nothing else has a use for."""
        return {"--line": self.line is not None, "--levels": self.levels}


@dataclasses.dataclass(frozen=True)
class ExploreArguments:
    """Serve a page on this machine: type a text and see its segments, compare models, watch one write."""

    model: Annotated[tuple[str, ...], _named("MODEL ...", "-m")] = (bundled.DEFAULT, bundled.HANDWRITING)
    """Run or checkpoint directories, or models that come with hmrnn, one or more; the page can read no others."""
    host: str = "127.0.0.1"
    """Address to listen on. Any but a loopback address lets others in."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    name: Annotated[tuple[str, ...], _named("NAME ...")] = ()
    """Further names under which the page may be reached, such as this machine's."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""

    def check(self) -> None:
        """Raise InputError on what cannot work."""
        if not self.model:
            raise InputError(
                "hmrnn explore needs a model: name one or more with -m, such as -m english-small runs/demo"
            )
        if not 0 <= self.port < 1 << 16:
            raise InputError(f"--port must lie between 0 and 65535; got {self.port}")
        for model in self.model:
            bundled.find(model)


@dataclasses.dataclass(frozen=True)
class ExportArguments:
    """Write a model to a directory that stands alone: weights, config, vocabulary and a card, no training state."""

    model: Annotated[str, _named("MODEL", "-m")]
    """A run directory (its best checkpoint is taken), a checkpoint directory, or a model that comes with hmrnn."""
    out: str
    """The directory to write, which must not exist."""
    half: bool = False
    """Round the weights to 16 bits: half the size."""

    def check(self) -> None:
        """Raise InputError on what cannot work."""
        bundled.find(self.model)


@dataclasses.dataclass(frozen=True)
class DataArguments:
    """Show what a corpus holds, or make text from a Wikipedia dump (--text8-from or --prose-from DUMP, --out FILE)."""

    name: Annotated[tyro.conf.Positional[str], _named("[NAME]")] = "demo"
    """A preset, a text file, or an .npz file of pen strokes."""
    path: Annotated[tuple[str, ...], _named("PATH ...")] = ()
    """Where the corpus is."""
    split: Literal["paper", "official"] = "paper"
    """Which split of iamondb to show."""
    archive: Annotated[str | None, _named("FILE")] = None
    """Write all lines of a corpus of pen strokes to this file, as one compact .npz archive."""
    text8_from: Annotated[str | None, _named("DUMP")] = None
    """A Wikipedia XML dump (.xml, .xz, .gz, .bz2) to clean into the 27 symbols of text8."""
    prose_from: Annotated[str | None, _named("DUMP")] = None
    """A Wikipedia XML dump to take the paragraphs of, as a reader sees them, in ASCII and one to a line."""
    out: Annotated[str | None, _named("PATH")] = None
    """The file to write with --text8-from or --prose-from; text8 or prose.txt if not given."""
    characters: int = 0
    """With --text8-from: stop after so many characters (100000000 of enwik9 are text8); 0: clean it all."""

    def check(self) -> None:
        """Raise InputError on what cannot work."""
        if self.text8_from is not None and self.prose_from is not None:
            raise InputError("--text8-from and --prose-from were both given; one of them at a time")
        _check_files((*self.path, *filter(None, (self.text8_from, self.prose_from))))


@dataclasses.dataclass(frozen=True)
class BenchArguments:
    """Measure this package beside torch.nn.LSTM, interleaved in one run; writes tables, JSON and a plot."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where to measure."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products, of both."""
    modes: tuple[Literal["train", "forward", "stream"], ...] = ("train", "forward", "stream")
    """train: forward and backward pass. forward: without a gradient. stream: symbol by symbol, batch 1."""
    sizes: Annotated[tuple[str, ...], _named("SIZE ...")] = ()
    """Batch x hidden size, such as 64x512; 64x512 on a CPU, also 128x1024 and 512x1024 on a GPU if not given. Streaming
    takes the hidden sizes alone, 512 and 1024 if not given."""
    repeats: int = 5
    """Times each is measured, in turn; the median counts."""
    layer_norm: bool = False
    """Measure with layer normalisation, too."""
    threads: int = 0
    """CPU threads; 0 leaves PyTorch's choice."""
    out: str = "runs/bench"
    """Name of the files to write, without their endings."""

    def check(self) -> None:
        """Raise InputError on what cannot work."""
        for size in self.sizes:
            if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", size):
                raise InputError(f"--sizes must look like 64x512 (batch x hidden size); got {size!r}")


@dataclasses.dataclass(frozen=True)
class DemoArguments:
    """Train the demo preset on the Python manual, or handwriting on built-in lines, and show what was found."""

    handwriting: bool = False
    """Handwriting instead of text."""
    out: Annotated[str | None, _named("PATH")] = None
    """Directory of the run; if not given, runs/demo or runs/handwriting, with -quick after it for --quick."""
    fresh: bool = False
    """Train again even if a finished demo is there."""
    quick: bool = False
    """A tiny model and little text: every step of the demo within seconds, and nothing learned."""

    def check(self) -> None:
        """Nothing can be wrong that is known without a look at the run."""


def _check_files(paths: Iterable[str]) -> None:
    for path in paths:
        if not os.path.exists(os.path.expanduser(path)):
            hint = did_you_mean(path, (), files=True)
            raise InputError(f"there is no file {path}, or it is out of reach; check the path{hint}")


ARGUMENTS: dict[str, type] = {
    "demo": DemoArguments,
    "train": TrainArguments,
    "evaluate": EvaluateArguments,
    "score": ScoreArguments,
    "segment": SegmentArguments,
    "generate": GenerateArguments,
    "plot": PlotArguments,
    "explore": ExploreArguments,
    "export": ExportArguments,
    "data": DataArguments,
    "bench": BenchArguments,
}
