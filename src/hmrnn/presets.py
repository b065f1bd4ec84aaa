"""The paper's settings, and the demo's, as configs. Names are what ``hmrnn train NAME`` takes."""

from __future__ import annotations

from hmrnn.config import Config, DataConfig, ModelConfig, RegulariseConfig, TrainConfig

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
            detector_rates=(0.19, 0.05),
            recurrent_gain=0.3,
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
            recurrent_gain=0.3,
            detector_feedback=0.3,
            threads=1,
            log_every=15,
        ),
        RegulariseConfig(
            rate_targets=(0.7, 0.09), rate_weight=0.0, rate_control=0.05, surprise_weight=0.05, surprise_margin=1.0
        ),
    ),
    "strokes": Config(
        DataConfig(format="strokes"),
        ModelConfig(hidden_size=(200,), output_size=200, layer_norm=False),
        TrainConfig(epochs=50, batch_size=32, learning_rate=0.001, patience=4, detector_recurrence=0.5),
    ),
    "text": Config(
        DataConfig(format="text"),
        ModelConfig(embedding_size=64, hidden_size=(256,), output_size=256),
        TrainConfig(epochs=20, batch_size=32),
    ),
}
