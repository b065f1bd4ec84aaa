"""Presets: the settings of the paper, of the demo and of the best results, by the names that ``hmrnn train`` takes."""

from __future__ import annotations

import dataclasses

from hmrnn.config import Config, DataConfig, DetectorConfig, ModelConfig, RegulariseConfig, SegmentConfig, TrainConfig

_wikipedia_model = ModelConfig(hidden_size=(1024,), output_size=2048)
_wikipedia_train = TrainConfig(batch_size=128, learning_rate=0.001)
_strokes_train = TrainConfig(learning_rate=0.003, cool_down=0.9, skip_nonfinite=True)
_no_plateau = 99  # validations; the learning rate falls by cool_down alone

# segments of about 5 and 20 symbols that end where the uncertainty of the next symbol stands out
_words = DetectorConfig(
    rates=(0.19, 0.05),
    start_at_rates=True,
    rate_weight=0.0,
    rate_control=0.02,
    pull_to="entropy",
    pull_weight=0.3,
    pull_margin=1.0,
    on_copy="hold",
)
# rates of the best results on text: reached before the first update, then held by a prior
_held = DetectorConfig(rates=(0.9, 0.6), start_at_rates=True, rate_weight=0.2)
# rates of the best results on strokes, held by control
_strokes_held = DetectorConfig(rates=(0.85, 0.15), rate_weight=0.0, rate_control=0.05, bounds=(0.3, 0.5))
_strokes_pulled = dataclasses.replace(_strokes_held, pull_weight=0.05, pull_margin=1.0)

FINETUNE = TrainConfig(epochs=3, batch_size=16, cool_down=1.0, patience=_no_plateau, log_every=20)
"""Training that starts from a model; the rest of its settings come from the model."""
FINETUNE_RATE = 0.5
"""Learning rate of such a run, as a share of the rate that the model was trained with."""

# labelled sequences; also the defaults of the estimators. Rates are held by control
_labelled = DetectorConfig(rates=(0.5, 0.25), start_at_rates=True, rate_weight=0.0, rate_control=0.05)
_labelled_model = ModelConfig(embedding_size=32, hidden_size=(64,), output_size=64, flush=False, top_down="pending")
_labelled_train = TrainConfig(
    epochs=50, batch_size=16, learning_rate=0.003, cool_down=0.5, patience=10, divisions=0, skip_nonfinite=True
)
_labelled_regularise = RegulariseConfig(dropout_output=0.2)

_best = "the settings of the best HM-LSTM in results{}"
_paper = "the paper's settings; better ones: {}"
NOTES = {
    "ptb": _paper.format("ptb-best"),
    "enwik8": _paper.format("enwik8-best"),
    "iamondb": _paper.format("iamondb-best"),
    "ptb-best": _best.format(", which has FLUSH; no run of its size without FLUSH is recorded"),
    "enwik8-best": _best.format(""),
    "iamondb-best": _best.format(", which has FLUSH; without it seed 1 had 25 nats less"),
}
"""What ``hmrnn train PRESET --help`` says of a preset before its settings."""

PRESETS: dict[str, Config] = {
    "demo": Config(
        DataConfig(format="novel"),
        ModelConfig(embedding_size=32, hidden_size=(128,), output_size=128, flush=False, top_down="pending"),
        TrainConfig(
            epochs=5,
            batch_size=64,
            length=50,
            learning_rate=0.012,
            optimizer="muon",
            cool_down=0.6,
            patience=3,
            threads=1,
            skip_nonfinite=True,
            seed=3,
            log_every=20,
        ),
        detectors=_words,
    ),
    "text": Config(
        DataConfig(format="text"),
        ModelConfig(embedding_size=64, hidden_size=(256,), output_size=256, flush=False, top_down="pending"),
        TrainConfig(
            epochs=5,
            batch_size=32,
            learning_rate=0.008,
            optimizer="muon",
            cool_down=0.9,
            patience=_no_plateau,
            skip_nonfinite=True,
        ),
        RegulariseConfig(dropout_output=0.2, dropout_between=0.1, shift=True),
        _words,
    ),
    "words": Config(
        DataConfig(format="text", remove_spaces=True),
        # layer 2 moves at word ends alone, so most units are in layer 1
        ModelConfig(
            embedding_size=48, hidden_size=(128, 64), num_layers=2, output_size=96, flush=False, top_down="pending"
        ),
        TrainConfig(
            epochs=0,
            batch_size=32,
            learning_rate=0.006,
            cool_down=0.8,
            patience=_no_plateau,
            threads=1,
            skip_nonfinite=True,
            log_every=20,
        ),
        RegulariseConfig(shift=True, dropout_output=0.1),
        DetectorConfig(
            rates=(0.2,),
            start_at_rates=True,
            rate_weight=0.0,
            rate_control=0.02,
            pull_to="segments",
            pull_weight=1.0,
            pull_margin=1.0,
            pull_delay=1,
            hidden=32,
        ),
        SegmentConfig(size=64, lexicon=4096, reader=96, dropout=0.4),
    ),
    "handwritten": Config(
        DataConfig(format="handwritten", lines=1200),
        ModelConfig(hidden_size=(64,), output_size=64, mixtures=10),
        TrainConfig(epochs=4, batch_size=24, learning_rate=0.006, cool_down=0.9, patience=4, threads=1, log_every=15),
        detectors=dataclasses.replace(_strokes_pulled, rates=(0.7, 0.09), bounds=(0.3, 0.0)),
    ),
    "strokes": Config(
        DataConfig(format="strokes"),
        ModelConfig(hidden_size=(200,), output_size=200),
        dataclasses.replace(_strokes_train, batch_size=32, patience=8),
        detectors=_strokes_pulled,
    ),
    "ptb": Config(DataConfig(format="ptb"), detectors=DetectorConfig(slope=(0.04, 5.0))),
    "text8": Config(DataConfig(format="text8"), _wikipedia_model, _wikipedia_train),
    "enwik8": Config(DataConfig(format="enwik8"), _wikipedia_model, _wikipedia_train),
    "iamondb": Config(
        DataConfig(format="iamondb"),
        ModelConfig(hidden_size=(400,), output_size=400, layer_norm=False),
        TrainConfig(epochs=100, batch_size=32, learning_rate=0.0003, patience=4),
        detectors=DetectorConfig(slope=(0.004, 3.0), bounds=(1.0, 0.5)),
    ),
    "ptb-best": Config(
        DataConfig(format="ptb"),
        ModelConfig(hidden_size=(1024,), output_size=1024),
        TrainConfig(
            epochs=100, batch_size=128, learning_rate=0.003, cool_down=0.8, patience=_no_plateau, skip_nonfinite=True
        ),
        RegulariseConfig(
            weight_drop=0.4,
            dropout_output=0.4,
            dropout_between=0.2,
            dropout_embedding=0.1,
            shift=True,
            weight_decay=0.2,
        ),
        dataclasses.replace(_held, slope=(0.04, 5.0)),
    ),
    "enwik8-best": Config(
        DataConfig(format="enwik8"),
        dataclasses.replace(_wikipedia_model, flush=False, top_down="pending"),
        TrainConfig(
            epochs=17,
            batch_size=256,
            learning_rate=0.0015,
            cool_down=0.9,
            patience=_no_plateau,
            validation_symbols=1_000_000,
            skip_nonfinite=True,
        ),
        RegulariseConfig(weight_drop=0.25, dropout_output=0.2, dropout_between=0.1, shift=True),
        dataclasses.replace(_held, slope=(0.12, 3.0), on_copy="hold"),
    ),
    "iamondb-best": Config(
        DataConfig(format="iamondb"),
        ModelConfig(hidden_size=(400,), output_size=400),
        dataclasses.replace(_strokes_train, batch_size=48, patience=_no_plateau),
        RegulariseConfig(weight_drop=0.1),
        dataclasses.replace(_strokes_held, slope=(0.02, 3.0)),
    ),
    "labels": Config(
        DataConfig(format="labels", valid_fraction=0.1),
        _labelled_model,
        dataclasses.replace(_labelled_train, epochs=100, patience=20),  # tens of series are few updates
        dataclasses.replace(_labelled_regularise, dropout_embedding=0.2),
        _labelled,
    ),
    "numbers": Config(
        DataConfig(format="numbers", valid_fraction=0.1),
        _labelled_model,
        dataclasses.replace(_labelled_train, epochs=100, patience=20),
        RegulariseConfig(),
        _labelled,
    ),
    "series": Config(
        DataConfig(format="series", valid_fraction=0.1),
        dataclasses.replace(_labelled_model, num_layers=2),
        dataclasses.replace(_labelled_train, epochs=100, patience=20, batch_size=8),
        RegulariseConfig(),
        dataclasses.replace(_labelled, rates=_labelled.rates[:1]),
    ),
    "tags": Config(
        DataConfig(format="tags", valid_fraction=0.1),
        dataclasses.replace(_labelled_model, bidirectional=True),
        _labelled_train,
        _labelled_regularise,
        _labelled,
    ),
    "pairs": Config(
        DataConfig(format="pairs", valid_fraction=0.1),
        dataclasses.replace(_labelled_model, bidirectional=True, attend="segments"),
        dataclasses.replace(_labelled_train, batch_size=32),
        dataclasses.replace(_labelled_regularise, dropout_output=0.1),
        dataclasses.replace(_labelled, rates=(0.75, 0.375)),  # short segments: the decoder sees one state of each
    ),
}
