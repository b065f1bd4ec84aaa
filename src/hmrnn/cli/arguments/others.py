"""The arguments of the commands that need no model: data, words, bench, demo, doctor and shell."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from hmrnn.config import Config
from hmrnn.config.sections import MOST_THREADS
from hmrnn.errors import InputError
from hmrnn.utils.options import Options, option


@dataclasses.dataclass(frozen=True)
class DataArguments(Options):
    """Show what a corpus holds.

    hmrnn data book.txt
    hmrnn data labels reviews.tsv
    hmrnn data ptb corpora/ptb
    """

    FLAGS: ClassVar = {"data.path": "PATH", "data.split": "--split"}
    name: str = option("demo", "[PRESET|PATH]", positional=True)
    """A preset, a text file, a folder of text files, or a file of strokes (.npz)."""
    paths: tuple[str, ...] = option((), "[PATH ...]", positional=True, file=True)
    """Files or folders with the data, after a preset; or more files after the first."""

    def check(self) -> None:
        super().check()
        Config.load(self.name)


@dataclasses.dataclass(frozen=True)
class WordsArguments(Options):
    """Find the words of a text that marks none: train on it, then write its words and their counts.

    hmrnn words book.txt                       # everything is in runs/book-words
    hmrnn words more.txt -m runs/book-words    # by a model that was trained already
    """

    FLAGS: ClassVar = {"data.path": "FILE"}
    file: str = option("", "FILE", positional=True, file=True)
    """The text. Its spaces, if it has any, are taken out; line ends always end a word."""
    model: str | None = option(None, "MODEL", "-m")
    """A run directory of the preset words; training is left out."""
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

    handwriting: bool = False
    """Handwriting instead of text."""
    out: str | None = option(None, "PATH")
    """Directory of the run; runs/demo or runs/handwriting if not given."""
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
