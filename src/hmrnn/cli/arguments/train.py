"""The arguments of ``hmrnn train``: a preset or files, and every setting."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from hmrnn.config import Config
from hmrnn.utils.options import Options, check_files, flag, option


@dataclasses.dataclass(frozen=True)
class TrainArguments(Config, Options):
    """Train a model.

    hmrnn train book.txt                        # on a text of yours; the run is runs/book
    hmrnn train book.txt --resume               # continue after Ctrl-C
    hmrnn train book.txt --from english-small   # from a trained model, for 3 epochs
    hmrnn train labels reviews.tsv              # on texts with labels
    hmrnn train ptb --data.path corpora/ptb     # as in the paper
    hmrnn train run.toml                        # with the settings of a file
    """

    ALIASES: ClassVar[dict[str, str]] = {"train.start_from": "--from"}
    """Further flags of settings."""
    FLAGS: ClassVar[dict[str, str]] = {"device": "train.device", "engine": "train.engine"}
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

    @property
    def config(self) -> Config:
        return Config(*(getattr(self, field.name) for field in dataclasses.fields(Config)))

    @classmethod
    def called(cls, setting: str) -> str:
        setting = cls.FLAGS.get(setting, setting)
        return cls.ALIASES.get(setting) or (flag(setting) if "." in setting else setting)

    def check(self) -> None:
        self.config.check()
        check_files(*self.data.path)
