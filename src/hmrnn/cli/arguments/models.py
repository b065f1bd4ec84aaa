"""The arguments of the commands that use a model: what they have for every kind of data."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from hmrnn.errors import InputError
from hmrnn.pretrained import bundled
from hmrnn.utils.options import Options, option


class OfModels(Options):
    """Arguments that name one or more models."""

    model: str | tuple[str, ...]

    def check(self) -> None:
        super().check()
        for model in [self.model] if isinstance(self.model, str) else self.model:
            bundled.find(model)


@dataclasses.dataclass(frozen=True)
class ModelArguments(OfModels):
    model: str = option(bundled.DEFAULT, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:N, or auto."""


@dataclasses.dataclass(frozen=True)
class ReadArguments(ModelArguments):
    """What ``segment``, ``score`` and ``plot`` share."""

    FLAGS: ClassVar = {"data.path": "--file"}

    file: str | None = option(None, "FILE", file=True)
    """A file to read, which may be packed (.xz, .gz, .bz2). A line end at the very end of a text is dropped."""
    condition: str | None = option(None, "CLASS")
    """For a model that was trained with data.condition: the class, or numbers separated by commas."""


@dataclasses.dataclass(frozen=True)
class EvaluateArguments(ModelArguments):
    """Bits per character of a model on its own corpus or on other files; boundary rates, updates and multiply-adds.

    hmrnn evaluate -m runs/book
    hmrnn evaluate -m runs/book --split valid --boundaries
    hmrnn evaluate --file other.txt --plain
    """

    FLAGS: ClassVar = {"data.path": "--path or --file"}
    split: Literal["train", "valid", "test"] | None = option(None, without=("file",))
    """Part of the model's own corpus to read; test if not given."""
    file: tuple[str, ...] = option((), "FILE", file=True)
    """Files to read instead of the model's own corpus, in the format it was trained on."""
    condition: str | None = option(None, "CLASS", needs="file")
    """For a model that was trained with data.condition: that of --file, a class, or numbers separated by commas."""
    path: tuple[str, ...] = option((), "PATH", file=True, without=("file",))
    """Where the model's own corpus is now, if it has moved since training."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        super().check()
        own = self.file or self.path or self.model not in bundled.names()
        if not own and not bundled.comes_with_corpus(self.model):
            raise InputError(f"{self.model} comes without its corpus: name a text by --file, or a run of yours by -m")


@dataclasses.dataclass(frozen=True)
class ScoreArguments(ReadArguments):
    """Bits per character of a text: each character is predicted from those before it.

    hmrnn score "It was the best of times."
    hmrnn score -m runs/book --lines --file book.txt
    """

    json: bool = False
    """Print JSON; with --lines, one object per line."""


@dataclasses.dataclass(frozen=True)
class SegmentArguments(ReadArguments):
    """Show the segments that a model finds in a text, level by level.

    hmrnn segment "When the boats came back in the evening"
    hmrnn segment -m runs/book --file book.txt --format words
    hmrnn segment -m runs/book --stream book.txt --out found
    """

    json: bool = False
    """Print JSON: segment ends per level, operations, probabilities, norms, bits of each symbol."""


@dataclasses.dataclass(frozen=True)
class GenerateArguments(ModelArguments):
    """Continue a prompt, symbol by symbol; or write lines of handwriting.

    hmrnn generate "The river " --length 300
    hmrnn generate -m runs/book "It was " --temperature 0.7 --samples 2
    hmrnn generate -m handwriting-small --bias 1 --out lines.svg
    """

    length: int | None = None
    """Symbols or points to generate, 500 symbols or 600 points if not given; a model of lines (data.format lines), or
    of strokes with model.halt, may end earlier."""
    condition: str | None = option(None, "CLASS")
    """For a model that was trained with data.condition: the class, or numbers separated by commas."""
    temperature: float | None = None
    """Below 1 is safer, above 1 more varied, 0 always takes the likeliest; 0.8 for text, 1 for handwriting if not
    given."""
    seed: int | None = None
    """Seed of the random draws: the same seed gives the same output."""
    samples: int | None = option(None, "N")
    """Number of texts that continue the prompt, or of lines of handwriting; 1 if not given."""


@dataclasses.dataclass(frozen=True)
class PredictArguments(ModelArguments):
    """Answer sequences with a model made by hmrnn train labels|tags|pairs|numbers, or forecast with one of series.

    hmrnn predict -m runs/labels new.txt
    hmrnn predict -m runs/labels reviews.tsv --explain
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used) or a checkpoint directory."""
    file: str = option("-", "[FILE]", positional=True, file=True)
    """A file as for training, with answers or without (.tsv, .csv, .jsonl, .conll), or with a sequence per line; - or
    nothing reads lines from standard input. With answers, the share of right ones is reported, too;
    of numbers R² and the errors."""
    json: bool = False
    """Print a JSON object per sequence: answer, probabilities, segment ends and weights."""


@dataclasses.dataclass(frozen=True)
class PlotArguments(ReadArguments):
    """Draw the paper's Figure 3 or 4 for a text, its Figure 5 for handwriting, or the training curves of a run.

    hmrnn plot "The river flows through the old town." --figure segments --out segments.png
    hmrnn plot -m runs/book --figure curves --out curves.svg
    """

    figure: str | None = None
    """3: boundaries under the text. 4: with a heat map of the norms. 5: handwriting, coloured by segment.
    segments: the text as coloured blocks. timescales: lengths of the segments of each level. curves: loss and boundary
    rates over training. If not given, 4 for text and 5 for handwriting."""
    out: str = option("figure.png", "FILE")
    """File to write: .png, .svg or .pdf."""


EXPLORED = tuple(bundled.names())


@dataclasses.dataclass(frozen=True)
class ExploreArguments(ModelArguments):
    """Serve a page on this machine: type a text and see its segments, compare models, watch one write.

    hmrnn explore
    hmrnn explore -m runs/book english-small --port 9000
    """

    model: tuple[str, ...] = option(EXPLORED, "MODEL", "-m")  # type: ignore[assignment]
    """One or more run directories, checkpoint directories or bundled models; the page can reach no others. Without -m
    the page also has runs/demo, if hmrnn demo has made it."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address but a loopback address lets others connect."""
    port: int = option(8000, "N", least=0, most=(1 << 16) - 1)
    """Port to listen on; 0 takes a free one."""
    name: tuple[str, ...] = option((), "NAME")
    """Further host names of the page, such as this machine's; https://NAME for that of a proxy with TLS."""


@dataclasses.dataclass(frozen=True)
class ExportArguments(OfModels):
    """Write a model to a directory of its own: weights, config, vocabulary and a card, without training state.

    hmrnn export -m runs/book --out book-small --half
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
    out: str | None = option(None, "PATH")
    """The directory to write, which must not exist."""
    half: bool = option(False, needs="out")
    """Round the weights to 16 bits, which halves the size."""

    def check(self) -> None:
        super().check()
        if self.out is None and not self.own():
            raise InputError("--out names the directory to write; give it")

    def own(self) -> list[str]:
        """The options given that only the model's kind of data has: what is written beside, or instead."""
        common = {field.name for field in dataclasses.fields(ExportArguments)}
        return [field.name for field in self.given() if field.name not in common]
