"""Fitted estimators."""

from __future__ import annotations

import pytest

import hmrnn
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
