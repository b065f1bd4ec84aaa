"""Labelled sequences as five kinds of data: labels, tags, pairs, numbers and series."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hmrnn.config import CONTEXT, OF_TEXT, Config
from hmrnn.errors import InputError
from hmrnn.kind import InputSpec, Kind, Measure
from hmrnn.kinds.labels.options import Beam, Predict
from hmrnn.kinds.labels.presets import NOTES, PRESETS
from hmrnn.kinds.labels.settings import PairModelConfig, PooledModelConfig
from hmrnn.utils import files

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hmrnn.kinds.labels.commands import LabelCommands
    from hmrnn.kinds.labels.corpus import LabelCorpus
    from hmrnn.kinds.labels.encoder import LabelEncoder
    from hmrnn.kinds.labels.networks import SequenceModel
    from hmrnn.training.task import Task


OF_PREDICTION = (
    "data.test_fraction", "train.scheduled_sampling", "detectors.estimator reinforce", "detectors.discount",
    "detectors.entropy", "detectors.pull_to", "detectors.pull_weight", "detectors.pull_delay", "detectors.pull_margin",
)  # fmt: skip
"""What is lacked where no next step is predicted, and no part is kept for a test."""


class Labelled(Kind):
    """One of the five; ``per`` is what its nats are counted per, ``error`` what its error is a share of."""

    def __init__(self, name: str, per: str, error: str = "wrong") -> None:
        preset = PRESETS[name]
        self.name, self.formats, self.per, self.error = name, (name,), per, error
        self.presets, self.notes = {name: preset}, NOTES
        self.Settings, self.Model = type(preset.data), type(preset.model)
        self.lacks = (
            *OF_TEXT, *CONTEXT, *OF_PREDICTION, *(f"data.format {other}" for other in PRESETS if other != name),
            *(("regularise.dropout_embedding",) if name == "series" else ()),
        )  # fmt: skip
        self.options = {"predict": Beam if name == "pairs" else Predict}

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

    def commands(self, progress: Callable[[str], Any]) -> LabelCommands:
        from hmrnn.kinds.labels.commands import LabelCommands

        return LabelCommands(self, progress)

    def spec(self, plain: dict[str, Any]) -> LabelEncoder:
        from hmrnn.kinds.labels.encoder import LabelEncoder

        return LabelEncoder.from_dict(plain)

    def measure(self, spec: InputSpec) -> Measure:
        return Measure("nats", self.per)

    def matches(self, path: Path) -> bool:
        own = {".csv", ".tsv", ".jsonl", ".ndjson", *((".conll", ".conllu") if self.name == "tags" else ())}
        return not path.is_dir() and bool(files.endings(path) & own)

    def load(self, config: Config, progress: Any = None) -> LabelCorpus:
        from hmrnn.kinds.labels.load import load_labelled

        return load_labelled(config.data, progress)

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

    def task(self, config: Config, corpus: LabelCorpus, device: torch.device, rank: int = 0, world: int = 1) -> Task:
        from hmrnn.kinds.labels.task import LabelledTask

        network = self.network(config, corpus.encoder, config.train.engine)
        return LabelledTask(config, corpus, network, device, rank, world)

    def model(self, network: nn.Module, spec: InputSpec, config: Config, source: str | None = None) -> Any:
        from hmrnn.kinds.labels.model import MODELS

        return MODELS[self.name](cast(Any, network), cast("LabelEncoder", spec), config, source)


KINDS = (
    Labelled("labels", "sequence"),
    Labelled("tags", "tag"),
    Labelled("pairs", "symbol"),
    Labelled("numbers", "answer", "of the variance left"),
    Labelled("series", "forecast", "of the variance left"),
)
