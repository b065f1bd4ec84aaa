"""The settings of a run as dataclasses. They are the flags of ``hmrnn train`` and the config.json of a checkpoint.

A setting is named "section.field", such as "train.epochs"; errors use these names. Settings that the chosen network or
data do not have are ignored where they are sizes or schedules, and refused where someone turned something on.
"""

from hmrnn.config.data import (
    BUILT_IN_TEXTS,
    LABEL_FORMATS,
    SEQUENCE_FORMATS,
    SPLITS,
    STROKE_FORMATS,
    DataConfig,
    Format,
)
from hmrnn.config.detectors import DetectorConfig, PullTo
from hmrnn.config.model import ModelConfig, Network
from hmrnn.config.regularise import RegulariseConfig
from hmrnn.config.run import SECTIONS, Config
from hmrnn.config.segments import SegmentConfig
from hmrnn.config.train import TrainConfig

__all__ = [
    "BUILT_IN_TEXTS",
    "LABEL_FORMATS",
    "SECTIONS",
    "SEQUENCE_FORMATS",
    "SPLITS",
    "STROKE_FORMATS",
    "Config",
    "DataConfig",
    "DetectorConfig",
    "Format",
    "ModelConfig",
    "Network",
    "PullTo",
    "RegulariseConfig",
    "SegmentConfig",
    "TrainConfig",
]
