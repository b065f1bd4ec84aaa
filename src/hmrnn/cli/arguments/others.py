"""The arguments of the commands that need no model: data, bench and demo."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Literal

from hmrnn.cli.arguments.base import Arguments
from hmrnn.cli.parse import flag, option
from hmrnn.cli.target import preset_for
from hmrnn.config.train import MOST_THREADS
from hmrnn.errors import InputError


@dataclasses.dataclass(frozen=True)
class DataArguments(Arguments):
    """Show what a corpus holds.

    hmrnn data book.txt
    hmrnn data labels reviews.tsv
    hmrnn data ptb --path corpora/ptb
    """

    name: str = option("demo", "[PRESET|PATH]", positional=True)
    """A preset, a text file, a folder of text files, or a file of strokes (.npz)."""
    paths: tuple[str, ...] = option((), "[PATH ...]", positional=True, file=True)
    """Files or folders with the data, after a preset; or more files after the first. Same as --path."""
    path: tuple[str, ...] = option((), "PATH", file=True)
    """Where the corpus is, after a preset."""
    split: Literal["paper", "official"] = "paper"
    """Which split of iamondb to show."""
    archive: str | None = option(None, "FILE")
    """Write all lines of a corpus of strokes to this file, a compact .npz archive."""

    def flags(self) -> dict[str, str]:
        return {"data.path": "--path", "data.split": "--split", "data.bytes": "--data.bytes of hmrnn train"}

    def check(self) -> None:
        super().check()
        named = (*preset_for(self.name)[1].data.path, *self.paths)
        if named and self.path:
            raise InputError(f"the data was given twice: {named[0]} and --path {self.path[0]}; leave one out")


@dataclasses.dataclass(frozen=True)
class BenchArguments(Arguments):
    """Measure this package beside torch.nn.LSTM, interleaved in one run; writes tables, JSON and a plot.

    hmrnn bench --modes train --sizes 32x128
    """

    device: Literal["cpu", "cuda"] = "cpu"
    """Where to measure."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the matrix products, in both."""
    modes: tuple[Literal["train", "forward", "stream"], ...] = ("train", "forward", "stream")
    """train: forward and backward pass. forward: without a gradient. stream: symbol by symbol, batch 1."""
    sizes: tuple[str, ...] = option((), "SIZE")
    """Batch size x hidden size, such as 64x512; if not given, 32x64, 32x128 and 64x512 on a CPU, 64x512, 128x1024 and
    512x1024 on a GPU. The mode stream uses the hidden sizes alone, 128, 512 and 1024 if not given."""
    repeats: int = 5
    """Measurements of each, taken in turn; the median is reported."""
    layer_norm: bool = False
    """Measure with layer normalisation, too."""
    threads: int = 0
    """CPU threads; 0 leaves the choice to PyTorch."""
    out: str = option("runs/bench", "PATH")
    """Path of the files to write, without their endings."""

    def check(self) -> None:
        super().check()
        for name, least in (("repeats", 1), ("threads", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{flag(name)} must be at least {least}; got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise InputError(f"--threads must be at most {MOST_THREADS}; got {self.threads}")
        if not self.modes:
            raise InputError("--modes needs one or more of train, forward and stream")
        if not Path(self.out).name:
            raise InputError(f"--out must be the path of files, without their endings; got {self.out!r}")
        for size in self.sizes:
            if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", size):
                raise InputError(f"--sizes must look like 64x512 (batch size x hidden size); got {size!r}")


@dataclasses.dataclass(frozen=True)
class DemoArguments(Arguments):
    """Train on a novel, or on built-in handwriting, and show what the model found.

    hmrnn demo
    hmrnn demo --handwriting
    """

    handwriting: bool = False
    """Handwriting instead of text."""
    out: str | None = option(None, "PATH")
    """Directory of the run; runs/demo or runs/handwriting if not given, with -quick at the end for --quick."""
    fresh: bool = False
    """Train again even if a finished demo is there."""
    quick: bool = False
    """A tiny model and little data: every step of the demo within seconds, but nothing is learned."""
