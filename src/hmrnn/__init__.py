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
    from hmrnn.errors import InputError as InputError
    from hmrnn.estimators.classifier import HMClassifier as HMClassifier
    from hmrnn.estimators.forecaster import HMForecaster as HMForecaster
    from hmrnn.estimators.regressor import HMRegressor as HMRegressor
    from hmrnn.estimators.tagger import HMTagger as HMTagger
    from hmrnn.estimators.transducer import HMTransducer as HMTransducer
    from hmrnn.nn.cell import HMLSTMCell as HMLSTMCell
    from hmrnn.nn.hmlstm import HMLSTM as HMLSTM
    from hmrnn.nn.models import HandwritingModel as HandwritingModel
    from hmrnn.nn.models import LanguageModel as LanguageModel
    from hmrnn.nn.output import Operation as Operation
    from hmrnn.nn.output import Output as Output
    from hmrnn.ops import State as State
    from hmrnn.pretrained.load import load as load
    from hmrnn.pretrained.strokes import StrokeModel as StrokeModel
    from hmrnn.pretrained.text import TextModel as TextModel

__version__ = "0.1.0"
_HOME = {
    "HMClassifier": "hmrnn.estimators.classifier",
    "HMForecaster": "hmrnn.estimators.forecaster",
    "HMLSTM": "hmrnn.nn.hmlstm",
    "HMLSTMCell": "hmrnn.nn.cell",
    "HMRegressor": "hmrnn.estimators.regressor",
    "HMTagger": "hmrnn.estimators.tagger",
    "HMTransducer": "hmrnn.estimators.transducer",
    "HandwritingModel": "hmrnn.nn.models",
    "InputError": "hmrnn.errors",
    "LanguageModel": "hmrnn.nn.models",
    "Operation": "hmrnn.nn.output",
    "Output": "hmrnn.nn.output",
    "Segmentation": "hmrnn.analysis.segmentation",
    "State": "hmrnn.ops",
    "StrokeModel": "hmrnn.pretrained.strokes",
    "TextModel": "hmrnn.pretrained.text",
    "load": "hmrnn.pretrained.load",
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
