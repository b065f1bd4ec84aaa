"""HMClassifier, HMTagger and HMTransducer: what they refuse, and weights and labels at the edge."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hmrnn
from hmrnn.errors import InputError
from hmrnn.kinds.labels.estimators.base import NotFittedError
from labelled import FIT, LABELS, NUMBERS, SENTENCES, SMALL, SOUNDS, TAGS, TEXTS, WORDS, series
from refusals import refused


def test_random_states() -> None:
    def first(random_state: Any) -> float:
        model = hmrnn.HMClassifier(**{**SMALL, "epochs": 1}, random_state=random_state)
        return float(model.fit(TEXTS, LABELS).predict_proba(["ab"])[0, 0])

    state = np.random.RandomState
    assert first(state(0)) == first(state(0)) != first(state(1))
    assert first(None) != first(None)


def test_labels_that_training_has_not_shown_are_wrong(classifier: hmrnn.HMClassifier, tagger: hmrnn.HMTagger) -> None:
    assert classifier.score(["abab", "cdcd"], ["first", "third"]) == 0.5
    answer = tagger.predict([["the", "cat"]])[0]
    assert tagger.score([["the", "cat"]], [[answer[0], "X"]]) == 0.5
    assert tagger.score([["the"], ["cat"]], [["X"], ["N"]], [1, 0]) == 0.0


def test_a_second_fit_forgets_the_first() -> None:
    X, y = series()
    model = hmrnn.HMClassifier(**{**SMALL, "epochs": 1}).fit(X, y)
    assert model.n_features_in_ == 2
    assert not hasattr(model.fit(TEXTS, LABELS), "n_features_in_")


BAD: list[tuple[Any, dict[str, Any], Any, Any, str]] = [
    (hmrnn.HMClassifier, {}, TEXTS, LABELS[:3], "y"),
    (hmrnn.HMClassifier, {}, TEXTS, ["same"] * 16, "y"),
    (hmrnn.HMClassifier, {}, ["", "a"], [0, 1], "X[0]"),
    (hmrnn.HMTagger, {}, SENTENCES, TAGS[:2], "y"),
    (hmrnn.HMRegressor, {}, TEXTS, NUMBERS[:2], "y"),
    (hmrnn.HMTransducer, {}, WORDS, SOUNDS[:2], "y"),
    (hmrnn.HMTransducer, {}, WORDS, 5, "y"),
    (hmrnn.HMClassifier, {}, ["a", float("nan")], [0, 1], "X[1]"),
    (hmrnn.HMClassifier, {}, {"a": 1, "b": 2}, [0, 1], "X"),
    (hmrnn.HMClassifier, {}, TEXTS, [0.0, float("inf")] * 8, "y[1]"),
    (
        hmrnn.HMClassifier, {"class_weight": {0: 0, 1: 1}, "validation_fraction": 0.1}, list("ababab"), [0] * 5 + [1],
        "class_weight",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "how", "X", "y", "named"), BAD)
def test_bad_input_to_fit(kind: Any, how: dict[str, Any], X: Any, y: Any, named: str) -> None:
    with refused(named):
        kind(**{**SMALL, **how}).fit(X, y)


WRONG: list[tuple[Any, str, dict[str, Any]]] = [
    (hmrnn.HMClassifier, "read_out", {"read_out": "sum"}),
    (hmrnn.HMClassifier, "rnn", {"rnn": "mamba"}),
    (hmrnn.HMClassifier, "rates", {"rates": (0.5,), "num_layers": 3}),
    (hmrnn.HMClassifier, "level", {"attend": "segments", "level": 2}),
    (hmrnn.HMClassifier, "attend", {"attend": "segments", "read_out": "max"}),
    (hmrnn.HMClassifier, "read_out", {"read_out": "tree", "bidirectional": True}),
    (hmrnn.HMClassifier, "read_out", {"read_out": "tree", "rnn": "lstm"}),
    (hmrnn.HMClassifier, "learning_rate", {"learning_rate": -1.0}),
    (hmrnn.HMClassifier, "learning_rate", {"learning_rate": "a"}),
    (hmrnn.HMClassifier, "epochs", {"epochs": 0}),
    (hmrnn.HMClassifier, "epochs", {"epochs": 2.0}),
    (hmrnn.HMClassifier, "hidden_size", {"hidden_size": "6"}),
    (hmrnn.HMClassifier, "hidden_size", {"hidden_size": ()}),
    (hmrnn.HMClassifier, "num_layers", {"num_layers": "2"}),
    (hmrnn.HMClassifier, "validation_fraction", {"validation_fraction": 1.0}),
    (hmrnn.HMClassifier, "validation_fraction", {"validation_fraction": ""}),
    (hmrnn.HMClassifier, "random_state", {"random_state": "x"}),
    (hmrnn.HMClassifier, "rates", {"rates": 0.5}),
    (hmrnn.HMClassifier, "rates", {"rates": ("a",)}),
    (hmrnn.HMClassifier, "rates", {"rates": (0.5,), "rnn": "lstm"}),
    (hmrnn.HMClassifier, "dropout", {"dropout": "no"}),
    (hmrnn.HMClassifier, "dropout", {"dropout": 1.5}),
    (hmrnn.HMTransducer, "level", {"level": "1"}),
    (hmrnn.HMClassifier, "bidirectional", {"bidirectional": "no"}),
    (hmrnn.HMTagger, "crf", {"crf": 1}),
    (hmrnn.HMTagger, "spelled", {"spelled": "no"}),
    (hmrnn.HMRegressor, "attend", {"attend": "segments", "read_out": "last"}),
    (hmrnn.HMRegressor, "read_out", {"read_out": "tree", "rnn": "lstm"}),
    (hmrnn.HMForecaster, "validation_fraction", {"validation_fraction": None}),
]


@pytest.mark.parametrize(("kind", "named", "how"), WRONG, ids=str)
def test_a_wrong_parameter_is_named(kind: Any, named: str, how: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        kind(**{**SMALL, **how}).fit(TEXTS, LABELS) if kind is not hmrnn.HMForecaster else kind(**how).fit([[1.0]])
    assert caught.value.setting == named


def test_numbers_of_numpy_are_parameters() -> None:
    how: Any = {"hidden_size": np.array([6, 5]), "num_layers": np.int64(2), "rates": [np.float32(0.5)]}
    model = hmrnn.HMClassifier(**{**SMALL, **how}, bidirectional=np.bool_(True), random_state=np.int64(3))
    config = model.fit(TEXTS, LABELS).model_.config
    assert (config.model.hidden_size, config.detectors.rates, config.train.seed) == ((6, 5), (0.5,), 3)


def test_a_loaded_tagger_reads_tokens_as_the_saved_one(tagger: hmrnn.HMTagger, tmp_path: Path) -> None:
    assert hmrnn.HMTagger.load(tagger.save(tmp_path / "model")).spelled is True


def test_bad_input_to_a_fitted_model(
    classifier: hmrnn.HMClassifier, tagger: hmrnn.HMTagger, transducer: hmrnn.HMTransducer
) -> None:
    with refused("X[0]"):
        tagger.predict(["the cat"])
    assert classifier.score(["ab"], ["third"]) == 0  # a label that training has not shown
    with refused("X[0]"):
        classifier.predict([["the", "cat"]])
    assert len(classifier.predict([["a", "Br"]])) == 1  # a token that training has not shown
    with refused("sample_weight"):
        classifier.score(["ab"], ["first"], [1, 1])
    with refused("y"):
        classifier.score(["ab"], ["first", "first"])
    with refused():
        classifier.predict([np.ones((3, 1))])
    with refused("X"):
        classifier.predict("ab")
    with refused("beam"):
        transducer.model_.predict(["ab"], beam=0)
    with pytest.raises(NotFittedError):
        hmrnn.HMClassifier().predict(["ab"])
    with refused():
        hmrnn.HMClassifier().set_params(size=3)


ESTIMATORS = [hmrnn.HMClassifier, hmrnn.HMRegressor, hmrnn.HMForecaster, hmrnn.HMTagger, hmrnn.HMTransducer]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_an_estimator_that_is_not_fitted_raises_the_error_of_scikit_learn(kind: Any) -> None:
    from sklearn.exceptions import NotFittedError as Theirs

    for use in ("predict", "score", "explain", "save"):
        with pytest.raises(Theirs) as info:
            getattr(kind(), use)(*[["ab"]] * (2 if use == "score" else 1))
        for error in (info.value, pickle.loads(pickle.dumps(info.value))):
            assert isinstance(error, Theirs)
            assert isinstance(error, NotFittedError)
            assert isinstance(error, InputError)
            assert str(error) == str(info.value)


def test_without_scikit_learn_the_error_is_the_packages_own() -> None:
    code = (
        "import sys, hmrnn\ntry: hmrnn.HMClassifier().predict(['ab'])\nexcept hmrnn.InputError as error: print(error)"
    )
    code += "\nassert 'sklearn' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "this HMClassifier is not fitted yet; call fit first\n"


LENGTHS = "series may be of any length, and n_features_in_ counts channels"
OBJECTS = "numbers in arrays of objects are not read; the error says the dtype"
EMPTY = "a series has steps, not features"
EXPECTED: dict[Any, dict[str, str]] = {
    hmrnn.HMClassifier: {
        "check_n_features_in_after_fitting": LENGTHS,
        "check_n_features_in": LENGTHS,
        "check_sample_weight_equivalence_on_dense_data": "batches are drawn from other sequences",
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": EMPTY,
        "check_classifiers_train": "one epoch does not learn it",
        "check_class_weight_classifiers": "one epoch does not learn it",
        "check_classifiers_regression_target": "numbers may be labels",
        "check_supervised_y_2d": "a column of labels is read without a warning",
    },
    hmrnn.HMRegressor: {
        "check_n_features_in_after_fitting": LENGTHS,
        "check_n_features_in": LENGTHS,
        "check_sample_weight_equivalence_on_dense_data": "batches are drawn from other sequences",
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": EMPTY,
        "check_regressors_train": "one epoch does not learn it",
        "check_fit2d_1sample": "a sequence is held out, and one alone cannot be",
    },
    hmrnn.HMForecaster: {
        "check_n_features_in_after_fitting": "the error is about channels",
        "check_complex_data": OBJECTS,
        "check_dtype_object": OBJECTS,
        "check_estimators_empty_data_messages": EMPTY,
        "check_methods_sample_order_invariance": "rows are steps of one series",
        "check_methods_subset_invariance": "rows are steps of one series",
        "check_fit2d_1sample": "rows are steps of one series",
        "check_fit1d": "an array (time,) is one series",
        "check_fit2d_predict1d": "an array (time,) is one series",
    },
}
"""What scikit-learn's checks ask for that these estimators do not do, and why. The checks have no data for HMTagger and
HMTransducer, which answer with sequences."""


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(kind: Any) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    small = {"rnn": "lstm", "num_layers": 1, "hidden_size": 4, "epochs": 1, "batch_size": 64}
    estimator = kind(steps=2, window=4, **small) if kind is hmrnn.HMForecaster else kind(**small)
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    assert sum(each["status"] == "passed" for each in found) >= 28
    failed = {each["check_name"]: each["exception"] for each in found if each["status"] == "failed"}
    assert failed.keys() <= EXPECTED[kind].keys(), failed


def test_a_fit_that_diverges_names_parameters_of_the_estimator() -> None:
    with pytest.raises(InputError, match="not finite") as info:
        hmrnn.HMClassifier(**SMALL, learning_rate=1e12).fit(TEXTS, LABELS)
    assert "learning_rate" in str(info.value)
    assert not {"train.", "clip_norm"} & set(str(info.value).split())


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "X", "y"), FIT)
def test_estimators_train_on_a_gpu(name: str, X: Any, y: Any) -> None:
    assert len(getattr(hmrnn, name)(**SMALL, device="cuda").fit(X, y).predict(X)) > 0
