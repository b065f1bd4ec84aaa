"""The paper's settings, the demo's and those of our best results, as configs: what ``hmrnn train NAME`` takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TypeVar

from hmrnn.config import Config, DataConfig, ModelConfig, RegulariseConfig, TrainConfig
from hmrnn.config_use import unused

C = TypeVar("C", bound=Config)

_wikipedia_model = ModelConfig(hidden_size=(1024,), output_size=2048)
_wikipedia_train = TrainConfig(batch_size=128, learning_rate=0.001)
# segments of about five symbols, and of four of those, that end where the model is least sure of what follows
_words = RegulariseConfig(
    rate_targets=(0.19, 0.05),
    rate_weight=0.0,
    rate_control=0.02,
    surprise_weight=0.3,
    surprise_kind="expected",
    surprise_margin=1.0,
)
# whole lines of strokes under layer norm, and detectors that are held by control
_strokes_train = TrainConfig(
    learning_rate=0.003,
    cool_down=0.9,
    skip_nonfinite=True,
    detector_feedback=0.3,
    detector_recurrence=0.5,
)
_strokes_held = RegulariseConfig(rate_targets=(0.85, 0.15), rate_weight=0.0, rate_control=0.05)
_strokes_pulled = dataclasses.replace(_strokes_held, surprise_weight=0.05, surprise_margin=1.0)  # to where it rises

PRESETS: dict[str, Config] = {
    "demo": Config(
        DataConfig(format="manual"),
        ModelConfig(embedding_size=32, hidden_size=(128,), output_size=128),
        TrainConfig(
            epochs=3,
            batch_size=64,
            length=50,
            learning_rate=0.006,
            cool_down=0.6,
            patience=3,
            threads=1,
            skip_nonfinite=True,
            seed=3,
            log_every=20,
            detector_rates=_words.rate_targets,
        ),
        _words,
    ),
    "ptb": Config(DataConfig(format="ptb"), ModelConfig(), TrainConfig(slope_rate=0.04, slope_max=5.0)),
    "text8": Config(DataConfig(format="text8"), _wikipedia_model, _wikipedia_train),
    "enwik8": Config(DataConfig(format="enwik8"), _wikipedia_model, _wikipedia_train),
    "iamondb": Config(
        DataConfig(format="iamondb"),
        ModelConfig(hidden_size=(400,), output_size=400, layer_norm=False),
        TrainConfig(
            epochs=100,
            batch_size=32,
            learning_rate=0.0003,
            patience=4,
            slope_rate=0.004,
            slope_max=3.0,
            detector_recurrence=0.5,
        ),
    ),
    "handwritten": Config(
        DataConfig(format="handwritten", lines=1200),
        ModelConfig(hidden_size=(64,), output_size=64, mixtures=10),
        TrainConfig(
            epochs=4,
            batch_size=24,
            learning_rate=0.006,
            cool_down=0.9,
            patience=4,
            detector_feedback=0.3,
            threads=1,
            log_every=15,
        ),
        dataclasses.replace(_strokes_pulled, rate_targets=(0.7, 0.09)),
    ),
    "strokes": Config(
        DataConfig(format="strokes"),
        ModelConfig(hidden_size=(200,), output_size=200),
        dataclasses.replace(_strokes_train, batch_size=32, patience=8),
        _strokes_pulled,
    ),
    "text": Config(
        DataConfig(format="text"),
        ModelConfig(embedding_size=64, hidden_size=(256,), output_size=256),
        TrainConfig(epochs=20, batch_size=32, detector_rates=_words.rate_targets),
        _words,
    ),
}

# rates that detectors start at and are held near by a prior
_held = RegulariseConfig(rate_targets=(0.9, 0.6), rate_weight=0.2, shift=True)
_no_plateau = 99  # validations; the learning rate falls by itself
PRESETS |= {
    "ptb-best": Config(
        DataConfig(format="ptb"),
        ModelConfig(hidden_size=(1024,), output_size=1024),
        TrainConfig(
            epochs=100,
            batch_size=128,
            learning_rate=0.003,
            cool_down=0.8,
            patience=_no_plateau,
            slope_rate=0.04,
            skip_nonfinite=True,
            detector_rates=_held.rate_targets,
        ),
        dataclasses.replace(
            _held,
            weight_drop=0.4,
            dropout_output=0.4,
            dropout_between=0.2,
            dropout_embedding=0.1,
            weight_decay=0.2,
        ),
    ),
    "enwik8-best": Config(
        DataConfig(format="enwik8"),
        _wikipedia_model,
        TrainConfig(
            epochs=13,
            batch_size=256,
            learning_rate=0.0015,
            cool_down=0.9,
            patience=_no_plateau,
            slope_rate=0.15,
            slope_max=3.0,
            validation_symbols=1_000_000,
            skip_nonfinite=True,
            detector_rates=_held.rate_targets,
        ),
        dataclasses.replace(_held, weight_drop=0.15, dropout_output=0.15, dropout_between=0.05),
    ),
    "iamondb-best": Config(
        DataConfig(format="iamondb"),
        ModelConfig(hidden_size=(400,), output_size=400),
        dataclasses.replace(_strokes_train, batch_size=48, patience=_no_plateau, slope_rate=0.02, slope_max=3.0),
        dataclasses.replace(_strokes_held, weight_drop=0.1),
    ),
}


def fit(config: C, preset: Config, asked: Collection[str] = ()) -> C:
    """``config``, made from ``preset`` by changing some of it, with its gain and rates as its network needs them.

    An ln-lstm begins with a gain of 1. A preset has rates for the two detectors of three layers. Fewer layers take the
    first of them, more go on in the same ratio, and a network that detects nothing has neither rates nor what pulls to
    them. Where detectors are given a bias, it takes the place of rates to start at. What differs from the preset, or
    whose name is ``asked`` for (such as "train.detector_rates"), stays as it is. Targets that nothing pulls to any more
    are left out.
    """
    model, train, regularise = config.model, config.train, config.regularise
    same_gain = train.recurrent_gain == preset.train.recurrent_gain and "train.recurrent_gain" not in asked
    if model.rnn == "ln-lstm" and same_gain:
        train = dataclasses.replace(train, recurrent_gain=1.0)
    detectors = 0 if "train.detector_rates" in unused(model) else model.num_layers - 1
    if train.detector_rates == preset.train.detector_rates and "train.detector_rates" not in asked:
        rates = () if train.detector_bias else _as_many(train.detector_rates, detectors)
        train = dataclasses.replace(train, detector_rates=rates)
    same = regularise.rate_targets == preset.regularise.rate_targets and "regularise.rate_targets" not in asked
    if regularise.rate_targets and same:
        targets = _as_many(regularise.rate_targets, detectors) if regularise.pulls else ()
        regularise = dataclasses.replace(regularise, rate_targets=targets)
        if not targets:
            control = regularise.rate_control if "regularise.rate_control" in asked else 0.0
            pull = regularise.surprise_weight if "regularise.surprise_weight" in asked else 0.0
            regularise = dataclasses.replace(regularise, rate_control=control, surprise_weight=pull)
    return dataclasses.replace(config, train=train, regularise=regularise)


def _as_many(rates: tuple[float, ...], detectors: int) -> tuple[float, ...]:
    """The first of the rates, and further ones in the ratio of the last two."""
    if not rates:
        return ()
    ratio = rates[-1] / rates[-2]
    further = (round(rates[-1] * ratio**k, 4) for k in range(1, detectors - len(rates) + 1))
    return (*rates[:detectors], *further)
