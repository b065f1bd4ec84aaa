"""The public names, and the examples in their docstrings."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.config import ModelConfig
from hmrnn.kinds.strokes.settings import StrokeModelConfig

PUBLIC = [
    "Config",
    "HMClassifier",
    "HMForecaster",
    "HMLSTM",
    "HMLSTMCell",
    "HMRegressor",
    "HMTagger",
    "HMTransducer",
    "HandwritingModel",
    "InputError",
    "LanguageModel",
    "Operation",
    "Output",
    "Segmentation",
    "State",
    "StrokeModel",
    "TextModel",
    "__version__",
    "load",
    "train",
]


def test_public_names_are_these() -> None:
    assert sorted(hmrnn.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(hmrnn, name) is not None


def test_operations_are_numbered() -> None:
    assert {o.name: int(o) for o in hmrnn.Operation} == {"UPDATE": 0, "COPY": 1, "FLUSH": 2}


@pytest.mark.parametrize(
    "documented",
    [
        hmrnn.HMForecaster,
        hmrnn.HMLSTM,
        hmrnn.HMLSTMCell,
        hmrnn.LanguageModel,
        hmrnn.HandwritingModel,
        hmrnn.nn.Attention,
        hmrnn.nn.Bidirectional,
        hmrnn.nn.ReadOut,
        hmrnn.nn.SequenceReadOut,
        hmrnn.nn.Stack,
        hmrnn.nn.TreeReadOut,
        hmrnn.nn.rate_loss,
        hmrnn.nn.ridge_regression,
        hmrnn.nn.segment_states,
        hmrnn.optim.Muon,
    ],
    ids=lambda c: c.__name__,
)
def test_docstring_examples_run(documented: type) -> None:
    models = {"LanguageModel": hmrnn.LanguageModel, "HandwritingModel": hmrnn.HandwritingModel}
    names_of = ("HMClassifier", "HMForecaster", "HMRegressor", "HMTagger", "HMTransducer")
    models |= {name: getattr(hmrnn, name) for name in names_of}
    names = {
        "np": np,
        "torch": torch,
        "hmrnn": hmrnn,
        "ModelConfig": ModelConfig,
        "StrokeModelConfig": StrokeModelConfig,
        **models,
    }
    (example,) = doctest.DocTestFinder(recurse=False).find(documented, globs=names)
    assert example.examples
    result = doctest.DocTestRunner().run(example)
    assert result.failed == 0
