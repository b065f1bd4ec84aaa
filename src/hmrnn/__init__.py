"""hmrnn: the Hierarchical Multiscale LSTM, which learns the hierarchy in a sequence without being shown a boundary.

The names below are the public ones. They are imported when first used: ``hmrnn --help`` need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hmrnn import nn as nn
    from hmrnn import optim as optim
    from hmrnn.analysis.segmentation import Segmentation as Segmentation
    from hmrnn.config import Config as Config
    from hmrnn.errors import InputError as InputError
    from hmrnn.kinds.labels.estimators.kinds import HMClassifier as HMClassifier
    from hmrnn.kinds.labels.estimators.kinds import HMForecaster as HMForecaster
    from hmrnn.kinds.labels.estimators.kinds import HMRegressor as HMRegressor
    from hmrnn.kinds.labels.estimators.kinds import HMTagger as HMTagger
    from hmrnn.kinds.labels.estimators.kinds import HMTransducer as HMTransducer
    from hmrnn.kinds.strokes.model import StrokeModel as StrokeModel
    from hmrnn.kinds.strokes.network import HandwritingModel as HandwritingModel
    from hmrnn.kinds.text.model import TextModel as TextModel
    from hmrnn.kinds.text.network import LanguageModel as LanguageModel
    from hmrnn.nn.cell import HMLSTMCell as HMLSTMCell
    from hmrnn.nn.hmlstm import HMLSTM as HMLSTM
    from hmrnn.nn.output import Operation as Operation
    from hmrnn.nn.output import Output as Output
    from hmrnn.ops import State as State
    from hmrnn.pretrained.load import load as load
    from hmrnn.pretrained.train import train as train

__version__ = "0.2.0"
_HOME = {
    "Config": "hmrnn.config",
    "HMClassifier": "hmrnn.kinds.labels.estimators.kinds",
    "HMForecaster": "hmrnn.kinds.labels.estimators.kinds",
    "HMLSTM": "hmrnn.nn.hmlstm",
    "HMLSTMCell": "hmrnn.nn.cell",
    "HMRegressor": "hmrnn.kinds.labels.estimators.kinds",
    "HMTagger": "hmrnn.kinds.labels.estimators.kinds",
    "HMTransducer": "hmrnn.kinds.labels.estimators.kinds",
    "HandwritingModel": "hmrnn.kinds.strokes.network",
    "InputError": "hmrnn.errors",
    "LanguageModel": "hmrnn.kinds.text.network",
    "Operation": "hmrnn.nn.output",
    "Output": "hmrnn.nn.output",
    "Segmentation": "hmrnn.analysis.segmentation",
    "State": "hmrnn.ops",
    "StrokeModel": "hmrnn.kinds.strokes.model",
    "TextModel": "hmrnn.kinds.text.model",
    "load": "hmrnn.pretrained.load",
    "train": "hmrnn.pretrained.train",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("nn", "optim"):
        return importlib.import_module(f"hmrnn.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'hmrnn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
