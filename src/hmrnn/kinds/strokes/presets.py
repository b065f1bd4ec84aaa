"""The presets of pen strokes, by the names that ``hmrnn train`` takes."""

from __future__ import annotations

import dataclasses

from hmrnn.config import KEEPING, Config, DetectorConfig, RegulariseConfig, TrainConfig
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig, TranscriptData, TranscriptModelConfig

_train = TrainConfig(learning_rate=0.003, cool_down=0.9, skip_nonfinite=True)
# rates of the best results on strokes, held by control
_held = DetectorConfig(rates=(0.85, 0.15), rate_weight=0.0, rate_control=0.05, bounds=(0.3, 0.5))
_pulled = dataclasses.replace(_held, pull_weight=0.05, pull_margin=1.0)

PRESETS = {
    "strokes": Config(
        StrokeData(format="strokes"),
        StrokeModelConfig(hidden_size=(200,), output_size=200),
        dataclasses.replace(_train, batch_size=32, patience=8),
        detectors=_pulled,
    ),
    "handwritten": Config(
        StrokeData(format="handwritten", lines=1200),
        StrokeModelConfig(hidden_size=(64,), output_size=64, mixtures=10),
        TrainConfig(epochs=4, batch_size=24, learning_rate=0.006, cool_down=0.9, patience=4, threads=1, log_every=15),
        detectors=dataclasses.replace(_pulled, rates=(0.7, 0.09), bounds=(0.3, 0.0)),
    ),
    "iamondb": Config(
        StrokeData(format="iamondb"),
        StrokeModelConfig(hidden_size=(400,), output_size=400, layer_norm=False),
        TrainConfig(epochs=100, batch_size=32, learning_rate=0.0003, patience=4),
        detectors=DetectorConfig(slope=(0.004, 3.0), bounds=(1.0, 0.5)),
    ),
    "iamondb-best": Config(
        StrokeData(format="iamondb"),
        StrokeModelConfig(hidden_size=(400,), output_size=400),
        dataclasses.replace(_train, batch_size=48, patience=99),
        RegulariseConfig(weight_drop=0.1),
        dataclasses.replace(_held, slope=(0.02, 3.0)),
    ),
    "iamondb-text": Config(
        StrokeData(format="iamondb", split="official"),
        StrokeModelConfig(hidden_size=(400,), num_layers=2, output_size=400, halt=True, window="soft", **KEEPING),
        dataclasses.replace(_train, epochs=24, batch_size=64, optimizer="muon", learning_rate=0.004, patience=99),
        RegulariseConfig(weight_drop=0.1),
        dataclasses.replace(_held, rates=(0.3,)),
    ),
    "fonts-text": Config(
        StrokeData(format="fonts", lines=15_000, valid_fraction=0.02, test_fraction=0.02),
        StrokeModelConfig(
            hidden_size=(96, 160), num_layers=2, output_size=96, mixtures=8, halt=True, window="soft",
            window_components=6, window_points=12, **KEEPING,
        ),
        dataclasses.replace(_train, epochs=3, optimizer="muon", learning_rate=0.008, patience=99, threads=1),
        detectors=dataclasses.replace(_held, rates=(0.3,)),
    ),
}  # fmt: skip
NOTES = {
    "strokes": "pen strokes of your own",
    "handwritten": "built-in handwriting; small enough for a CPU",
    "iamondb": "the paper's settings; better ones: iamondb-best",
    "fonts-text": "writes a text, in built-in styles; an epoch takes two minutes of a CPU",
    "iamondb-text": "writes a text, in the hands of IAM-OnDB",
    "iamondb-best": "the settings of our best result, with the paper's cell; another had 25 nats less with seed 1",
}

_reader = Config(
    TranscriptData(format="strokes-read"),
    TranscriptModelConfig(hidden_size=(128,), num_layers=2, embedding_size=64, output_size=128, **KEEPING),
    dataclasses.replace(_train, epochs=40, batch_size=32, patience=99),
    RegulariseConfig(dropout_output=0.3),
    DetectorConfig(rates=(0.5,), start_at_rates=True, rate_weight=0.0, rate_control=0.05, on_copy="hold"),
)
READING = {
    "transcripts": _reader,
    "iamondb-read": dataclasses.replace(
        _reader,
        data=TranscriptData(format="iamondb-read", split="official", min_points=2, distort=0.15),
        model=TranscriptModelConfig(
            rnn="lstm", hidden_size=(256,), num_layers=3, embedding_size=64, output_size=256, layer_norm=True
        ),
        train=dataclasses.replace(_reader.train, epochs=34),
        regularise=RegulariseConfig(weight_drop=0.2, dropout_between=0.2, dropout_output=0.3),
        detectors=DetectorConfig(),
    ),
}
READING_NOTES = {
    "transcripts": "handwriting of your own with what it says, to read it",
    "iamondb-read": "reads handwriting, from IAM-OnDB",
}
