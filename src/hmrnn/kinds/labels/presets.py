"""The presets of labelled sequences, by the names that ``hmrnn train`` takes; the estimators have these defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

from hmrnn.config import KEEPING, Config, DetectorConfig, ModelConfig, RegulariseConfig, TrainConfig
from hmrnn.kinds.labels.settings import LabelData, PairModelConfig, PooledModelConfig, SeriesData, TagModelConfig

# rates are held by control
_detectors = DetectorConfig(rates=(0.5, 0.25), start_at_rates=True, rate_weight=0.0, rate_control=0.05)
_model: dict[str, Any] = {
    "embedding_size": 32, "hidden_size": (64,), "output_size": 64, **KEEPING
}  # fmt: skip
_train = TrainConfig(
    epochs=50, batch_size=16, learning_rate=0.003, cool_down=0.5, patience=10, divisions=0, skip_nonfinite=True
)
_regularise = RegulariseConfig(dropout_output=0.2)

PRESETS = {
    "labels": Config(
        LabelData(format="labels", valid_fraction=0.1),
        PooledModelConfig(**_model),
        dataclasses.replace(_train, epochs=100, patience=20),  # tens of series are few updates
        dataclasses.replace(_regularise, dropout_embedding=0.2),
        _detectors,
    ),
    "tags": Config(
        LabelData(format="tags", valid_fraction=0.1),
        TagModelConfig(**_model, bidirectional=True),
        _train,
        _regularise,
        _detectors,
    ),
    "pairs": Config(
        LabelData(format="pairs", valid_fraction=0.1),
        PairModelConfig(**_model, bidirectional=True, attend="segments"),
        dataclasses.replace(_train, batch_size=32),
        dataclasses.replace(_regularise, dropout_output=0.1),
        dataclasses.replace(_detectors, rates=(0.75, 0.375)),  # short segments: the decoder sees one state of each
    ),
    "numbers": Config(
        LabelData(format="numbers", valid_fraction=0.1),
        PooledModelConfig(**_model),
        dataclasses.replace(_train, epochs=100, patience=20),
        RegulariseConfig(),
        _detectors,
    ),
    "series": Config(
        SeriesData(format="series", valid_fraction=0.1),
        ModelConfig(**_model, num_layers=2),
        dataclasses.replace(_train, epochs=100, patience=20, batch_size=8),
        RegulariseConfig(),
        dataclasses.replace(_detectors, rates=_detectors.rates[:1]),
    ),
}
NOTES = {
    "labels": "sequences with a label each",
    "tags": "sequences with a tag per token",
    "pairs": "sequences to be turned into others",
    "numbers": "sequences with a number each",
    "series": "numbers over time, to forecast them",
}
