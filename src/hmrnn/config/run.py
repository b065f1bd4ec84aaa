"""All settings of a run, and how they go together."""

from __future__ import annotations

import dataclasses

from hmrnn.config import checks
from hmrnn.config.data import LABEL_FORMATS, POOLED_FORMATS, STROKE_FORMATS, DataConfig
from hmrnn.config.detectors import DetectorConfig
from hmrnn.config.model import ModelConfig
from hmrnn.config.regularise import RegulariseConfig
from hmrnn.config.segments import SegmentConfig
from hmrnn.config.train import TrainConfig
from hmrnn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    regularise: RegulariseConfig = dataclasses.field(default_factory=RegulariseConfig)
    detectors: DetectorConfig = dataclasses.field(default_factory=DetectorConfig)
    segments: SegmentConfig = dataclasses.field(default_factory=SegmentConfig)

    def check(self) -> None:
        """Raise InputError if a value cannot work, alone or together with the others."""
        checks.check_types(self)
        checks.check_needs(self)
        m, d, r = self.model, self.detectors, self.regularise
        if m.rnn == "hrnn" and d.estimator == "reinforce":
            raise InputError(
                "is for hm-lstm; model.rnn is hrnn, whose boundaries are given",
                setting="detectors.estimator",
                value="reinforce",
            )
        for section in (self.data, m, self.train, d):
            section.check()
        if m.time != "none" and not self.data.has_sequences:
            raise InputError(
                f"is for lines and strokes; data.format is {self.data.format}, leave it out", setting="model.time"
            )
        if any(self.train.scheduled_sampling) and self.data.is_labelled:
            raise InputError(
                "is for text and strokes, which predict their own inputs", setting="train.scheduled_sampling"
            )
        if m.halt and self.data.format not in STROKE_FORMATS:
            raise InputError(
                "is for strokes; lines of text end by their line end (data.format lines)", setting="model.halt"
            )
        if d.pull_to == "segments" and d.pull_weight > 0 and not self.segments.size:
            raise InputError(
                "needs a segmental head; set segments.size, such as 64", setting="detectors.pull_to", value="segments"
            )
        if not self.train.epochs and not self.segments.size:
            raise InputError(
                "must be at least 1; 0 is for runs with a segmental head (segments.size)", setting="train.epochs"
            )
        if self.segments.size and (not self.data.is_text or self.data.format == "lines"):
            raise InputError(
                f"is for running text; data.format is {self.data.format}, leave it out", setting="segments.size"
            )
        if not self.data.is_text:
            for name in ("shift", *([] if self.data.is_labelled else ["dropout_embedding"])):
                if getattr(r, name):
                    raise InputError(
                        f"is for text; data.format is {self.data.format}, leave it out", setting=f"regularise.{name}"
                    )
        self._check_labelled()
        if m.ridge:
            self._check_ridge()
        n = m.detectors
        for name, allowed in (("rates", {0, n}), ("bias", {0, min(1, n), n})):
            if len(values := getattr(d, name)) not in allowed:
                raise InputError(
                    f"must hold {' or '.join(map(str, sorted(allowed)))} numbers, the lowest detector first",
                    setting=f"detectors.{name}",
                    value=values,
                )

    def _check_ridge(self) -> None:
        """Raise InputError about settings that ridge regression does not have."""
        if not self.data.is_text or self.segments.size:
            raise InputError("is for text without segments.size; leave it out", setting="model.ridge")
        if self.train.epochs != 1:
            raise InputError(
                f"fits in one pass; train.epochs must be 1, and is {self.train.epochs}", setting="model.ridge"
            )
        if self.train.validate_every or any(self.train.scheduled_sampling):
            name = "validate_every" if self.train.validate_every else "scheduled_sampling"
            raise InputError("is for training by gradient; with model.ridge leave it out", setting=f"train.{name}")
        for field in dataclasses.fields(self.regularise):
            if getattr(self.regularise, field.name):
                raise InputError(
                    "is for training by gradient; with model.ridge leave it out", setting=f"regularise.{field.name}"
                )

    def _check_labelled(self) -> None:
        """Raise InputError about settings that labelled sequences do not have, or that only they have."""
        m = self.model
        if self.data.is_labelled:
            if m.rnn == "hrnn":
                raise InputError(
                    f"is for text; data.format is {self.data.format}, use hm-lstm", setting="model.rnn", value="hrnn"
                )
            if self.data.format == "series" and m.bidirectional:
                raise InputError(
                    "would read what a forecast has to predict; leave it out", setting="model.bidirectional"
                )
            pooled = self.data.format in POOLED_FORMATS
            if pooled and m.attend == "segments" and m.read_out != "attention":
                raise InputError(
                    f"is for model.read_out attention; it is {m.read_out}, so leave this out",
                    setting="model.attend",
                    value="segments",
                )
            if pooled and m.read_out == "tree" and (m.bidirectional or not m.detectors):
                raise InputError(
                    "needs segments: hm-lstm with two or more layers, in one direction",
                    setting="model.read_out",
                    value="tree",
                )
            if m.attend == "segments" and not m.level <= m.detectors:
                raise InputError(
                    f"there are {m.detectors} detectors in {m.rnn} with {m.num_layers} layers",
                    setting="model.level",
                    value=m.level,
                )
        elif m.bidirectional or m.crf:
            name = "bidirectional" if m.bidirectional else "crf"
            raise InputError(
                f"is for {', '.join(LABEL_FORMATS)}; data.format is {self.data.format}", setting=f"model.{name}"
            )

    def check_new(self) -> None:
        """Raise InputError about settings that a new run would not use; older runs and models may have them."""
        if not self.data.is_labelled:
            return
        m = self.model
        for name, only in (("crf", ("tags",)), ("read_out", POOLED_FORMATS)):
            if getattr(m, name) != getattr(ModelConfig, name) and self.data.format not in only:
                raise InputError(
                    f"is for {' and '.join(only)}; data.format is {self.data.format}, so leave it out",
                    setting=f"model.{name}",
                )
        if m.attend == "segments" and self.data.format in ("tags", "series"):
            raise InputError(
                f"is for labels, numbers and pairs; {self.data.format} are answered at each step, so leave it out",
                setting="model.attend",
            )


SECTIONS = tuple(field.name for field in dataclasses.fields(Config))
