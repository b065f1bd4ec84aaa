"""Fitted estimators."""

from __future__ import annotations

import warnings

import pytest

import hmrnn
import jumps
from hmrnn.estimators.segmenter import FitWarning, HMSegmenter
from labelled import LABELS, NUMBERS, SENTENCES, SMALL, SOUNDS, TAGS, TEXTS, WORDS


@pytest.fixture(scope="session")
def classifier() -> hmrnn.HMClassifier:
    return hmrnn.HMClassifier(**{**SMALL, "epochs": 12}, learning_rate=0.02).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def regressor() -> hmrnn.HMRegressor:
    return hmrnn.HMRegressor(**{**SMALL, "epochs": 12}, learning_rate=0.02).fit(TEXTS, NUMBERS)


@pytest.fixture(scope="session", params=[False, True], ids=["softmax", "crf"])
def tagger(request: pytest.FixtureRequest) -> hmrnn.HMTagger:
    return hmrnn.HMTagger(**{**SMALL, "epochs": 6}, learning_rate=0.02, crf=request.param).fit(SENTENCES, TAGS)


@pytest.fixture(scope="session", params=["segments", "steps"])
def transducer(request: pytest.FixtureRequest) -> hmrnn.HMTransducer:
    return hmrnn.HMTransducer(**SMALL, attend=request.param).fit(WORDS, SOUNDS)


@pytest.fixture(scope="session")
def fitted() -> HMSegmenter:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of few updates
        return HMSegmenter((4, 3), **jumps.SMALL).fit(jumps.two_levels(200, 0)[0])
