"""The presets of text, by the names that ``hmrnn train`` takes."""

from __future__ import annotations

import dataclasses

from hmrnn.config import KEEPING, Config, DetectorConfig, RegulariseConfig, SegmentConfig, TrainConfig
from hmrnn.kinds.text.settings import TextData, TextModelConfig

_wikipedia_model = TextModelConfig(hidden_size=(1024,), output_size=2048)
_wikipedia_train = TrainConfig(batch_size=128, learning_rate=0.001)
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

PRESETS = {
    "text": Config(
        TextData(format="text"),
        TextModelConfig(embedding_size=64, hidden_size=(256,), output_size=256, **KEEPING),
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
        TextData(format="text", remove_spaces=True),
        # layer 2 moves at word ends alone, so most units are in layer 1
        TextModelConfig(embedding_size=48, hidden_size=(128, 64), num_layers=2, output_size=96, **KEEPING),
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
    "demo": Config(
        TextData(format="novel"),
        TextModelConfig(embedding_size=32, hidden_size=(128,), output_size=128, **KEEPING),
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
    "ptb": Config(TextData(format="ptb"), TextModelConfig(), detectors=DetectorConfig(slope=(0.04, 5.0))),
    "text8": Config(TextData(format="text8"), _wikipedia_model, _wikipedia_train),
    "enwik8": Config(TextData(format="enwik8"), _wikipedia_model, _wikipedia_train),
    "ptb-best": Config(
        TextData(format="ptb"),
        TextModelConfig(hidden_size=(1024,), output_size=1024),
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
        TextData(format="enwik8"),
        dataclasses.replace(_wikipedia_model, **KEEPING),
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
}
NOTES = {
    "text": "a text of your own",
    "words": "a text whose spaces are removed, to find its words",
    "demo": "a novel; small enough for a CPU",
    "ptb": "the paper's settings; better ones: ptb-best",
    "text8": "the paper's settings",
    "enwik8": "the paper's settings; better ones: enwik8-best",
    "ptb-best": "the settings of our best result, with the paper's cell; no other run of its size is recorded",
    "enwik8-best": "the settings of our best result",
}
