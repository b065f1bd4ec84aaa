"""Labelled sequences as five kinds of data: labels, tags, pairs, numbers and series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from hmrnn.config import CONTEXT, OF_PREDICTION, OF_TEXT, Config
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec, Kind, Measure
from hmrnn.kinds.labels.options import Beam, Predict
from hmrnn.kinds.labels.presets import NOTES, PRESETS
from hmrnn.kinds.labels.settings import PairModelConfig, PooledModelConfig
from hmrnn.utils import files

if TYPE_CHECKING:
    from hmrnn.kinds.labels.encoder import LabelEncoder
    from hmrnn.kinds.labels.networks import SequenceModel


class Labelled(Kind):
    """One of the five; ``per`` is what its nats are counted per, ``error`` what its error is a share of."""

    def __init__(self, name: str, model: str, per: str, error: str = "wrong") -> None:
        preset = PRESETS[name]
        self.name, self.formats, self.per, self.error = name, (name,), per, error
        self.presets, self.notes = {name: preset}, NOTES
        self.Settings, self.Model = type(preset.data), type(preset.model)
        self.lacks = (
            *OF_TEXT, *CONTEXT, *OF_PREDICTION, "data.test_fraction",
            *(f"data.format {other}" for other in PRESETS if other != name),
            *(("regularise.dropout_embedding",) if name == "series" else ()),
        )  # fmt: skip
        self.options = {"predict": Beam if name == "pairs" else Predict}
        self.parts = {
            "spec": "hmrnn.kinds.labels.encoder:LabelEncoder", "corpus": "hmrnn.kinds.labels.load:load_labelled",
            "task": "hmrnn.kinds.labels.task:LabelledTask", "model": f"hmrnn.kinds.labels.model:{model}",
            "commands": "hmrnn.kinds.labels.commands:LabelCommands",
        }  # fmt: skip

    def check(self, config: Config) -> None:
        m = config.model
        if isinstance(m, PairModelConfig) and m.attend == "segments" and m.level > m.detectors:
            raise InputError(f"the network has {m.detectors} detectors", setting="model.level", value=m.level)
        if isinstance(m, PooledModelConfig) and m.read_out == "tree" and (m.bidirectional or not m.detectors):
            raise InputError(
                "needs segments: hm-lstm with two or more layers, in one direction",
                setting="model.read_out",
                value="tree",
            )

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("nats", self.per)

    def matches(self, path: Path) -> bool:
        own = {".csv", ".tsv", ".jsonl", ".ndjson", *((".conll", ".conllu") if self.name == "tags" else ())}
        return not path.is_dir() and bool(files.endings(path) & own)

    def network(self, config: Config, spec: InputSpec, engine: str = "auto") -> SequenceModel:
        from hmrnn.kinds.labels.networks import PlacedModel, PooledModel, TransducerModel

        m, encoder = config.model, cast("LabelEncoder", spec)
        steps = self.name in ("tags", "series") or encoder.answer.per_step
        if self.name == "numbers" and steps and (m.read_out, m.attend) != ("attention", "steps"):
            raise InputError(
                "these sequences have a number per step, which is read there; leave it out, and model.attend",
                setting="model.read_out",
            )
        make = TransducerModel if self.name == "pairs" else PlacedModel if steps else PooledModel
        return make(
            encoder.size, bool(encoder.symbols), encoder.answer.size, m, numbers=self.name in ("numbers", "series"),
            engine=engine, detectors=config.detectors,
        )  # fmt: skip


KINDS = (
    Labelled("labels", "LabelModel", "sequence"),
    Labelled("tags", "TagModel", "tag"),
    Labelled("pairs", "PairModel", "symbol"),
    Labelled("numbers", "NumberModel", "answer", "of the variance left"),
    Labelled("series", "ForecastModel", "forecast", "of the variance left"),
)
