"""The public names, and the examples in their docstrings."""

from __future__ import annotations

import doctest
import functools
import inspect
from enum import Enum
from inspect import Parameter, Signature, signature
from pathlib import Path

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.config import ModelConfig
from hmrnn.kinds.strokes.settings import StrokeModelConfig

API = Path(__file__).with_name("api.txt")
"""What semantic versioning promises, with its parameters. ``python tests/test_public.py`` writes these again."""


def now(line: str) -> str:
    """A line of the API as it is today: a name, and the names, order and defaults of its parameters."""
    name = line.partition("(")[0]
    value = functools.reduce(getattr, name.split("."), hmrnn)
    if inspect.isclass(value) and issubclass(value, (Enum, Exception)):
        return name
    found = [each.replace(annotation=Parameter.empty) for each in signature(value).parameters.values()]
    return name + str(Signature([each for each in found if each.name not in ("self", "cls")]))


def test_public_names_and_their_parameters_are_these() -> None:
    promised = API.read_text().splitlines()
    assert list(map(now, promised)) == promised
    assert {line.partition("(")[0] for line in promised if "." not in line.partition("(")[0]} == {*hmrnn.__all__} - {
        "__version__"
    }


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


if __name__ == "__main__":
    API.write_text("".join(now(line) + "\n" for line in API.read_text().splitlines()))
