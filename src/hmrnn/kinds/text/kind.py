"""Text as a kind of data."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from hmrnn.config import Config
from hmrnn.errors import InputError, no_file
from hmrnn.kind import InputSpec, Kind, Measure
from hmrnn.kinds.text.options import OPTIONS
from hmrnn.kinds.text.presets import NOTES, PRESETS
from hmrnn.kinds.text.settings import BUILT_IN_TEXTS, TextData, TextModelConfig
from hmrnn.utils import files

if TYPE_CHECKING:
    from hmrnn.checkpoint import Checkpoint
    from hmrnn.kinds.text.corpus import Corpus
    from hmrnn.kinds.text.network import LanguageModel
    from hmrnn.reading.vocabulary import Vocabulary

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".conll", ".conllu")
"""Endings of files that are no prose."""


class Text(Kind):
    name = "text"
    formats = (*BUILT_IN_TEXTS, "text", "lines", "ptb", "text8", "enwik8")
    Settings, Model = TextData, TextModelConfig
    options, presets, notes = OPTIONS, PRESETS, NOTES
    trains = {"demo": "demo", "words": "words"}  # noqa: RUF012
    parts = {  # noqa: RUF012
        "spec": "hmrnn.reading.vocabulary:Vocabulary",
        "corpus": "hmrnn.kinds.text.corpus:load_corpus",
        "task": "hmrnn.kinds.text.task:task_of",
        "model": "hmrnn.kinds.text.model:TextModel",
        "commands": "hmrnn.kinds.text.commands:TextCommands",
        "page": "hmrnn.kinds.text.page:TextPage",
    }

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("bits", spec.unit)

    def matches(self, path: Path) -> bool:
        endings = files.endings(path)
        if endings & {".fasta", ".fa", ".fastq", ".fq"} and not path.is_dir():
            raise InputError(
                f"{path} has headers, which a model of text would learn: write each sequence on a line of a .txt file, "
                "and give --data.format lines"
            )
        if path.is_dir():
            return not endings & {".npz", ".xml"} and (".txt" in endings or not endings & {".json", ".csv"})
        return not endings & {*TABLES, ".json", ".npz", ".xml", ".zip", ".tar", ".tgz"}

    def check(self, config: Config) -> None:
        epochs, size = config.train.epochs, config.segments.size
        if (config.data.bytes or config.data.format == "enwik8") and max(config.data.symbols, default="") > "\xff":
            raise InputError("must be bytes, characters up to U+00FF", setting="data.symbols")
        if size and config.data.format == "lines":
            raise InputError("is for running text; leave it out", setting="segments.size", value=size)
        if size and not config.segments.reader:
            raise InputError(
                "must be at least 1: a segmental head reads the text itself", setting="segments.reader", value=0
            )
        if config.model.ridge and epochs != 1:
            raise InputError("must be 1: model.ridge fits in one pass", setting="train.epochs", value=epochs)

    def at_hand(self, config: Config) -> Config:
        from hmrnn.kinds.text.novel import novel_file

        missing = config.data.format == "novel" and novel_file() is None
        return dataclasses.replace(config, data=TextData(format="manual")) if missing else config

    def settle(self, config: Config, corpus: Corpus) -> Config:
        from hmrnn.kinds.text.task import settled
        from hmrnn.reading.conditions import fitted

        return fitted(settled(config, corpus), corpus.conditions)

    def network(self, config: Config, spec: InputSpec, engine: str = "auto") -> LanguageModel:
        from hmrnn.kinds.text.network import LanguageModel
        from hmrnn.kinds.text.words.joints import rules

        model, vocabulary = config.model, cast("Vocabulary", spec)
        return LanguageModel(
            len(vocabulary), model, engine=engine, detectors=config.detectors, segments=config.segments,
            given=vocabulary.boundaries(model.num_layers - 1) if model.rnn == "hrnn" else None,
            rules=rules(vocabulary) if config.segments.size else None,
        )  # fmt: skip

    def continued(self, start: Checkpoint, name: str, data: Any) -> TextData:
        from hmrnn.kinds.text.sources import symbol_kind

        vocabulary = cast("Vocabulary", start.reads)
        if data.format in ("text", "lines", *BUILT_IN_TEXTS):
            data = dataclasses.replace(data, bytes=vocabulary.kind == "bytes")
        elif symbol_kind(data) != vocabulary.kind:
            raise InputError(
                f"holds {symbol_kind(data)}, and {name} reads {vocabulary.kind}; take the format text",
                setting="data.format",
                value=data.format,
            )
        return dataclasses.replace(
            data, symbols="".join(map(chr, vocabulary.values)), unknown=vocabulary.unknown,
            remove_spaces=start.config.data.remove_spaces,
        )  # fmt: skip

    def given(self, start: Checkpoint, data: Any, folder: Path, kept: bool) -> TextData:
        form: Literal["lines", "text"] = "lines" if start.config.data.format == "lines" else "text"
        if not isinstance(data, str) or os.path.exists(os.path.expanduser(data)):
            return TextData(format=form, path=files.paths(data))
        if files.seems_named(data):
            raise no_file(data)
        if kept:
            raise InputError(f"a run that is kept in out needs its text in a file, and there is no file {data[:100]!r}")
        (folder / "text").write_text(data, encoding="utf-8")
        return TextData(format=form, path=(str(folder / "text"),))


KINDS = (Text(),)
