"""What a run on labelled sequences is asked about its data and its model."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from hmrnn.config import DataConfig, ModelConfig
from hmrnn.config.checks import Count, Needs, Seed


@dataclasses.dataclass(frozen=True)
class LabelData(DataConfig):
    """The sequences to read, with their answers."""

    format: Literal["labels", "tags", "pairs", "numbers"] = "labels"
    """labels: sequences with a label each. tags: with a tag per token. pairs: sequences to be turned into others.
    numbers: with a number each."""
    split_seed: Seed = 1
    """Seed of the split into training and validation part."""


@dataclasses.dataclass(frozen=True)
class SeriesData(DataConfig):
    """The series to forecast."""

    format: Literal["series"] = "series"
    """series: numbers over time, of which the next steps are forecast."""
    ahead: Count = 10
    """How many steps to forecast."""
    window: Annotated[int, Meta(ge=2)] | None = None
    """How many steps a forecast reads; more than a season. Default: 64, or twice as many as it looks ahead."""

    @property
    def reads(self) -> int:
        """The steps that a forecast reads."""
        return self.window or max(64, 2 * self.ahead)


@dataclasses.dataclass(frozen=True)
class LabelledModelConfig(ModelConfig):
    """The model: embedding, recurrent network, gated output module, and what answers from its outputs."""

    bidirectional: bool = False
    """Read in both directions, with a network for each."""

    @property
    def directions(self) -> int:
        return 1 + self.bidirectional


@dataclasses.dataclass(frozen=True)
class TagModelConfig(LabelledModelConfig):
    """The model: embedding, recurrent network, gated output module, and a softmax or a CRF."""

    crf: bool = False
    """A linear-chain CRF over the tags of a sequence, instead of a softmax per tag."""


@dataclasses.dataclass(frozen=True)
class PairModelConfig(LabelledModelConfig):
    """The model: embedding, recurrent network, gated output module, and a decoder with attention."""

    attend: Literal["steps", "segments"] = "steps"
    """What attention chooses from: all steps, or the steps at which segments end."""
    level: Count = 1
    """The level of the segments that attention chooses from."""


@dataclasses.dataclass(frozen=True)
class PooledModelConfig(PairModelConfig):
    """The model: embedding, recurrent network, gated output module, and a read-out of all steps."""

    attend: Annotated[Literal["steps", "segments"], Needs("model.read_out", ("attention",))] = "steps"
    """What attention chooses from: all steps, or the steps at which segments end."""
    read_out: Literal["attention", "mean", "max", "last", "tree"] = "attention"
    """How the outputs of all steps become one. tree: by a tree-LSTM over the hierarchy of segments."""
