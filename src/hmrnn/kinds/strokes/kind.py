"""Handwriting as two kinds of data: lines to write, and lines to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hmrnn.config import CONTEXT, OF_PREDICTION, OF_TEXT, Config, DataConfig
from hmrnn.config.changes import replaced
from hmrnn.kind import InputSpec, Kind, Measure
from hmrnn.kinds.strokes.options import OPTIONS, Read
from hmrnn.kinds.strokes.presets import NOTES, PRESETS, READING, READING_NOTES
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig, TranscriptData, TranscriptModelConfig
from hmrnn.utils import files

if TYPE_CHECKING:
    from torch import nn

    from hmrnn.checkpoint import Checkpoint
    from hmrnn.kinds.strokes.strokes import StrokeCorpus

SCALE = "hmrnn.kinds.strokes.strokes:Scale"


class _Lines(Kind):
    def says(self, config: Config) -> bool:
        """Whether lines are needed with what they say."""
        return True

    def network(self, config: Config, spec: InputSpec, engine: str = "auto") -> nn.Module:
        made: nn.Module = self.part("network")(config.model, engine=engine, detectors=config.detectors)
        return made

    def load(self, config: Config, progress: Any = None) -> StrokeCorpus:
        from hmrnn.kinds.strokes.corpus import load_strokes

        return load_strokes(config.data, progress, texts=self.says(config))

    def settle(self, config: Config, corpus: StrokeCorpus) -> Config:
        from hmrnn.kinds.strokes.window import alphabet_of

        if not self.says(config) or config.model.alphabet:
            return config
        return replaced(config, {"model.alphabet": alphabet_of(corpus.train.texts)})


class Handwriting(_Lines):
    name = "strokes"
    formats = ("strokes", "iamondb", "handwritten", "fonts")
    Settings, Model = StrokeData, StrokeModelConfig
    lacks = (
        *OF_TEXT, "model.embedding_size", "regularise.dropout_embedding", "detectors.pull_to uncertainty",
        "detectors.pull_to entropy",
    )  # fmt: skip
    options, presets, notes = OPTIONS, PRESETS, NOTES
    trains = {"demo": "handwritten"}  # noqa: RUF012
    parts = {  # noqa: RUF012
        "spec": SCALE,
        "network": "hmrnn.kinds.strokes.network:HandwritingModel",
        "task": "hmrnn.kinds.strokes.task:StrokeTask",
        "model": "hmrnn.kinds.strokes.model:StrokeModel",
        "commands": "hmrnn.kinds.strokes.commands:StrokeCommands",
        "page": "hmrnn.kinds.strokes.page:StrokePage",
    }

    def says(self, config: Config) -> bool:
        return config.model.window != "none"

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("nats", "sequence")

    def matches(self, path: Path) -> bool:
        from hmrnn.kinds.strokes.iamondb import is_iamondb

        endings = files.endings(path)
        texts = path.is_dir() and ".txt" in endings
        return ".npz" in endings or (bool(endings & {".json", ".csv"}) and not texts) or is_iamondb(path)

    def settle(self, config: Config, corpus: StrokeCorpus) -> Config:
        from hmrnn.reading.conditions import fitted

        return fitted(super().settle(config, corpus), corpus.conditions)

    def continued(self, start: Checkpoint, name: str, data: DataConfig) -> DataConfig:
        return data

    def given(self, start: Checkpoint, data: Any, folder: Path, kept: bool) -> StrokeData:
        return StrokeData(format="strokes", path=files.paths(data))


class Transcripts(_Lines):
    """Lines of handwriting with what they say, to be read."""

    name = "transcripts"
    formats = ("strokes-read", "iamondb-read", "handwritten-read", "fonts-read")
    Settings, Model = TranscriptData, TranscriptModelConfig
    lacks = (
        *OF_TEXT, *CONTEXT, *OF_PREDICTION, "data.condition", "regularise.dropout_embedding",
    )  # fmt: skip
    error = "of the letters wrong"
    options, presets, notes = {"predict": Read}, READING, READING_NOTES
    parts = {  # noqa: RUF012
        "spec": SCALE,
        "network": "hmrnn.kinds.strokes.transcriber:Transcriber",
        "task": "hmrnn.kinds.strokes.transcripts:TranscriptTask",
        "model": "hmrnn.kinds.strokes.transcripts:TranscriptModel",
        "commands": "hmrnn.kinds.strokes.commands:TranscriptCommands",
        "page": "hmrnn.kinds.strokes.page:TranscriptPage",
    }

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("nats", "letter")


KINDS = (Handwriting(), Transcripts())
