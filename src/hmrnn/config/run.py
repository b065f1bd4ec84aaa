"""All settings of a run, and how they go together."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn import kind
from hmrnn.config import checks
from hmrnn.config.detectors import DetectorConfig
from hmrnn.config.regularise import RegulariseConfig
from hmrnn.config.segments import SegmentConfig
from hmrnn.config.train import TrainConfig
from hmrnn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run."""

    data: Any
    """The Settings of the kind of data, a DataConfig."""
    model: Any
    """The Model of the kind of data, a ModelConfig."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    regularise: RegulariseConfig = dataclasses.field(default_factory=RegulariseConfig)
    detectors: DetectorConfig = dataclasses.field(default_factory=DetectorConfig)
    segments: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)

    def check(self) -> None:
        """Raise InputError if a value cannot work, alone or together with the others."""
        reads = kind.of(self)
        for name, section, wanted in (("data", self.data, reads.Settings), ("model", self.model, reads.Model)):
            if type(section) is not wanted:
                raise InputError(
                    f"is of {reads.name}, whose section {name} is a {wanted.__name__}; got a {type(section).__name__}",
                    setting="data.format",
                    value=self.data.format,
                )
        checks.check_types(self)
        checks.check_needs(self)
        checks.check_lacking(self, reads.lacks, reads.name)
        m, t, d = self.model, self.train, self.detectors
        tested = not checks.lacking("data.test_fraction", reads.lacks)
        if tested and self.data.valid_fraction + self.data.test_fraction >= 1:
            raise InputError(
                "and data.test_fraction must leave something for training",
                setting="data.valid_fraction",
                value=self.data.valid_fraction,
            )
        if m.classes and m.condition_numbers:
            raise InputError("excludes model.condition_numbers; leave one of them out", setting="model.classes")
        if len(m.hidden_size) not in (1, m.num_layers):
            raise InputError(
                f"must hold 1 or {m.num_layers} sizes (model.num_layers)",
                setting="model.hidden_size",
                value=m.hidden_size,
            )
        if t.validation_symbols == 1:
            raise InputError("must be 0, for all, or at least 2; got 1", setting="train.validation_symbols")
        if t.batch_size % t.accumulate:
            raise InputError(
                f"{t.batch_size} must be a multiple of train.accumulate {t.accumulate}", setting="train.batch_size"
            )
        if not t.epochs and not self.segments.size:
            raise InputError(
                "must be at least 1; 0 is for runs with a segmental head (segments.size)", setting="train.epochs"
            )
        if d.start_at_rates and d.bias:
            raise InputError(
                "sets the biases that detectors.bias gives; leave one of them out", setting="detectors.start_at_rates"
            )
        n = m.detectors
        for name, allowed in (("rates", {0, n}), ("bias", {0, min(1, n), n})):
            if len(values := getattr(d, name)) not in allowed:
                raise InputError(
                    f"must hold {' or '.join(map(str, sorted(allowed)))} numbers, the lowest detector first",
                    setting=f"detectors.{name}",
                    value=values,
                )
        reads.check(self)


SECTIONS = tuple(field.name for field in dataclasses.fields(Config))
OF_TEXT = (
    "segments", "regularise.shift", "train.length", "train.validation_symbols", "model.ridge", "model.rnn hrnn",
    "detectors.pull_to segments",
)  # fmt: skip
"""What all kinds of data lack that are no text: sections, settings and values of settings."""
