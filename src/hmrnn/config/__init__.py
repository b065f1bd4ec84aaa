"""The settings of a run as dataclasses. They are the flags of ``hmrnn train`` and the config.json of a checkpoint.

A setting is named "section.field", such as "train.epochs"; errors use these names. Each kind of data has classes of its
own for the sections "data" and "model". The type of a setting says what else it needs: one of some networks, detectors,
another setting. ``Config.changed`` leaves out what a preset sets and the changes have no use for.
"""

from hmrnn.config.run import OF_TEXT, SECTIONS, Config
from hmrnn.config.sections import (
    CONTEXT,
    KEEPING,
    OF_PREDICTION,
    SPLITS,
    DataConfig,
    DetectorConfig,
    ModelConfig,
    Network,
    PullTo,
    RegulariseConfig,
    SegmentConfig,
    TrainConfig,
)

__all__ = [
    "CONTEXT",
    "KEEPING",
    "OF_PREDICTION",
    "OF_TEXT",
    "SECTIONS",
    "SPLITS",
    "Config",
    "DataConfig",
    "DetectorConfig",
    "ModelConfig",
    "Network",
    "PullTo",
    "RegulariseConfig",
    "SegmentConfig",
    "TrainConfig",
]
