"""The arguments of each command: a dataclass per command, whose fields are its flags.

``check`` finds what is wrong as far as that is known without torch, which takes seconds to import.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Literal

from hmrnn import kind
from hmrnn.config import Config
from hmrnn.config.sections import MOST_THREADS
from hmrnn.errors import InputError
from hmrnn.kind import Kind
from hmrnn.pretrained import bundled
from hmrnn.utils.options import Options, check_files, flag, named, option


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
    """Answer sequences with a model made by hmrnn train labels|tags|pairs|numbers, forecast with one of series, or read
    handwriting with one of transcripts.

    hmrnn predict -m runs/labels new.txt
    hmrnn predict -m runs/labels reviews.tsv --explain
    hmrnn predict -m reading-small lines.npz
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
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


@dataclasses.dataclass(frozen=True)
class ExploreArguments(ModelArguments):
    """Serve a page on this machine: type a text and see its segments, compare models, watch one write.

    hmrnn explore
    hmrnn explore -m runs/book english-small --port 9000
    """

    model: tuple[str, ...] = option((), "MODEL", "-m")  # type: ignore[assignment]
    """One or more run directories, checkpoint directories or bundled models; the page can reach no others. If not
    given, the bundled models, and what hmrnn demo has made in runs."""
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
    hmrnn export -m runs/book --onnx book.onnx
    """

    model: str = option(dataclasses.MISSING, "MODEL", "-m")
    """A run directory (its best checkpoint is used), a checkpoint directory, or the name of a bundled model."""
    out: str | None = option(None, "PATH")
    """The directory to write, which must not exist."""
    half: bool = option(False, needs="out")
    """Round the weights to 16 bits, which halves the size."""
    onnx: str | None = option(None, "FILE")
    """A file to write one step of the model to, for onnxruntime: pip install 'hmrnn[onnx]'."""

    def check(self) -> None:
        super().check()
        if self.out is None and self.onnx is None and not self.own():
            raise InputError("--out names the directory to write; give it")

    def own(self) -> list[str]:
        """The options given that only the model's kind of data has: what is written beside, or instead."""
        common = {field.name for field in dataclasses.fields(ExportArguments)}
        return [field.name for field in self.given() if field.name not in common]


@dataclasses.dataclass(frozen=True)
class TrainArguments(Options):
    """Train a model.

    hmrnn train book.txt                        # on a text of yours; the run is runs/book
    hmrnn train book.txt --resume               # continue after Ctrl-C
    hmrnn train book.txt --from english-small   # from a trained model, for 3 epochs
    hmrnn train labels reviews.tsv              # on texts with labels
    hmrnn train ptb --data.path corpora/ptb     # as in the paper
    hmrnn train run.toml                        # with the settings of a file
    """

    FLAGS: ClassVar = {"device": "--train.device", "engine": "--train.engine", "train.start_from": "--from"}
    config: Config
    """The settings of the run."""
    target: str = option("", "PRESET|PATH", positional=True)
    """A preset, a text file, a folder of text files, a file of strokes (.npz), or the settings of a run (.toml)."""
    paths: tuple[str, ...] = option((), "[PATH ...]", positional=True)
    """Files or folders with the data, after a preset; or more files after the first. Same as --data.path."""
    out: str | None = option(None, "PATH")
    """Directory of the run; if not given, runs/NAME, of a preset or of a file alone."""
    resume: bool = False
    """Continue the run in that directory exactly where it stopped."""
    overwrite: bool = False
    """Replace the run in that directory."""
    report: bool = True
    """Write report.html at the end of training."""
    log: Literal["tensorboard"] | None = None
    """Log curves, boundary rates and segments in that directory, too: pip install 'hmrnn[tensorboard]'."""

    @classmethod
    def called(cls, setting: str) -> str:
        return flag(setting) if "." in setting and setting not in cls.FLAGS else super().called(setting)

    def check(self) -> None:
        self.config.check()
        check_files(*self.config.data.path)


@dataclasses.dataclass(frozen=True)
class DataArguments(Options):
    """Show what a corpus holds.

    hmrnn data book.txt
    hmrnn data labels reviews.tsv
    hmrnn data ptb corpora/ptb
    """

    FLAGS: ClassVar = {"data.path": "PATH", "data.split": "--split"}
    name: str = option("", "[PRESET|PATH]", positional=True)
    """A preset, a text file, a folder of text files, or a file of strokes (.npz); if not given, that of hmrnn demo."""
    paths: tuple[str, ...] = option((), "[PATH ...]", positional=True, file=True)
    """Files or folders with the data, after a preset; or more files after the first."""

    @functools.cached_property
    def config(self) -> Config:
        return Config.load(self.name or usual().trains["demo"])

    def check(self) -> None:
        super().check()
        check_files(*self.config.data.path)


@dataclasses.dataclass(frozen=True)
class WordsArguments(Options):
    """Find the words of a text that marks none: train on it, then write its words and their counts.

    hmrnn words book.txt                       # everything is in runs/book-words
    hmrnn words more.txt -m runs/book-words    # by a model that was trained already
    """

    FLAGS: ClassVar = {"data.path": "FILE", "segments.known": "--lexicon", "segments.examples": "--segmented"}
    file: str = option("", "FILE", positional=True, file=True)
    """The text. Its spaces, if it has any, are taken out; line ends always end a word."""
    model: str | None = option(None, "MODEL", "-m")
    """A run directory of the preset words; training is left out."""
    device: str = "cpu"
    """Where to look for words: cpu, cuda, cuda:N, or auto."""
    lexicon: str | None = option(None, "FILE", file=True, without=("model",))
    """A list of known words, one per line, which need not be in the text."""
    segmented: str | None = option(None, "FILE", file=True, without=("model",))
    """Lines that are cut into words by spaces; some fifty show how words are meant."""
    out: str | None = option(None, "PATH")
    """The directory for the run, words.txt and lexicon.tsv; runs/NAME-words if not given."""
    fresh: bool = option(False, without=("model",))
    """Train again even if a finished run is there."""
    unknown: Literal["replace", "skip", "refuse"] = "replace"
    """What to do with symbols that a model given by -m does not know."""

    def check(self) -> None:
        super().check()
        if not self.file:
            raise InputError("hmrnn words needs a file, as in hmrnn words book.txt")


@dataclasses.dataclass(frozen=True)
class BenchArguments(Options):
    """How fast the networks train and step on this machine, beside torch.nn.LSTM, in turn.

    hmrnn bench
    hmrnn bench --device cuda --precision bf16 --json
    """

    device: Literal["cpu", "cuda"] = "cpu"
    """Where to measure."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products: bf16 on a GPU, by autocast."""
    repeats: int = option(5, "N", least=1)
    """Measurements of each, taken in turn; the best counts."""
    threads: int = option(1, "N", least=1, most=MOST_THREADS)
    """CPU threads. With one the processor's time is measured, with more the time that passes."""
    json: bool = False
    """Print the results as JSON."""

    def check(self) -> None:
        super().check()
        if self.precision == "bf16" and self.device == "cpu":
            raise InputError("--precision bf16 is for --device cuda; give both")


@dataclasses.dataclass(frozen=True)
class DemoArguments(Options):
    """Train on a novel, or on built-in handwriting, and show what the model found.

    hmrnn demo
    hmrnn demo --handwriting
    """

    out: str | None = option(None, "PATH")
    """Directory of the run; runs/demo, or runs/handwritten with --handwriting, if not given."""
    fresh: bool = False
    """Train again even if a finished demo is there."""


@dataclasses.dataclass(frozen=True)
class DoctorArguments(Options):
    """What hmrnn has to work with on this machine: versions, engine, threads, GPU and extras, and what is missing.

    hmrnn doctor
    """


@dataclasses.dataclass(frozen=True)
class ShellArguments(Options):
    """Print the completion of commands and flags for a shell, or the man page.

    hmrnn shell bash  # > ~/.local/share/bash-completion/completions/hmrnn
    hmrnn shell fish  # > ~/.config/fish/completions/hmrnn.fish
    hmrnn shell man  # > ~/.local/share/man/man1/hmrnn.1
    """

    what: Literal["bash", "zsh", "fish", "man"] = option("bash", positional=True)
    """bash, zsh or fish; or man. In .zshrc: eval "$(hmrnn shell zsh)"."""


ARGUMENTS: dict[str, type[Any]] = {
    "demo": DemoArguments,
    "train": TrainArguments,
    "words": WordsArguments,
    "evaluate": EvaluateArguments,
    "score": ScoreArguments,
    "segment": SegmentArguments,
    "generate": GenerateArguments,
    "predict": PredictArguments,
    "plot": PlotArguments,
    "explore": ExploreArguments,
    "export": ExportArguments,
    "data": DataArguments,
    "bench": BenchArguments,
    "doctor": DoctorArguments,
    "shell": ShellArguments,
}
"""What the commands have for every kind of data."""


@functools.cache
def arguments_of(command: str) -> type[Any]:
    """The arguments of a command, those that only some kinds of data have included."""
    common = ARGUMENTS[command]
    own = dict.fromkeys(one.options[command] for one in kind.every() if command in one.options)
    least = [one for one in own if not any(one is not other and issubclass(other, one) for other in own)]
    return dataclasses.make_dataclass(
        common.__name__, (), bases=(*least, common), frozen=True, namespace={"__doc__": common.__doc__}
    )


def own_options(command: str, of: Kind) -> set[str]:
    """The names of the options of a command that this kind of data adds."""
    return {field.name for field in dataclasses.fields(of.options.get(command, Options))}


def check_kind(command: str, arguments: Options, of: Kind) -> None:
    """Raise InputError if an option is given that this kind of data does not have."""
    known = own_options(command, of) | {field.name for field in dataclasses.fields(ARGUMENTS[command])}
    for field in arguments.given():
        if field.name not in known:
            others = [one.name for one in kind.every() if field.name in own_options(command, one)]
            raise InputError(f"{named(field)} is for {' and '.join(others)}, and this is {of.name}; leave it out")


def usual() -> Kind:
    """The kind of data that is meant where nothing says another: that of the default model."""
    return kind.of(Config.load(bundled.find(bundled.DEFAULT)))
