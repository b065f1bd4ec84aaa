"""HMSegmenter: what it refuses, its parameters, and scikit-learn."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.estimators.base import NotFittedError
from hmrnn.estimators.segmenter import HMSegmenter
from jumps import SMALL, two_levels
from labelled import Table

pytestmark = pytest.mark.filterwarnings("ignore::hmrnn.estimators.segmenter.FitWarning")  # of fits with few updates


@pytest.mark.parametrize(("X", "message"), [
    (np.zeros(1), "2 or more steps"),
    (np.array(["a", "b"]), "numbers"),
    ([[1.0, 2.0], [3.0]], "shape"),
    (None, "got NoneType"),
    (5, "got int"),
    ("text", "numbers"),
    (np.zeros((0, 50, 2)), "empty list"),
    (np.zeros((2, 2, 50, 2)), "shape"),
    (np.zeros((1, 2)), "2 or more steps"),
    (np.full((50, 1), np.nan), "finite"),
    (np.ma.masked_array(np.zeros((50, 1)), mask=np.eye(50, 1)), "finite"),
    ({1.0, 2.0}, "got set"),
    (np.full((50, 1), 1e160), r"at most 1e\+100 in size; got 1e\+160"),
    (np.array([["a"], ["b"]]), "numbers"),
    ([], "empty list"),
    ([np.zeros((50, 1)), np.zeros((50, 2))], "channels"),
    (np.zeros((12, 1)), "needs at least 18"),
])  # fmt: skip
def test_bad_series(X: Any, message: str) -> None:
    with pytest.raises(hmrnn.InputError, match=message):
        HMSegmenter(**SMALL).fit(X)


def test_channels_of_tables_are_taken_by_their_names() -> None:
    x = two_levels(100, 0)[0]
    names = [f"sensor {k}" for k in range(x.shape[1])]
    table = Table(names, x)
    segmenter = HMSegmenter(**SMALL).fit(table)
    assert segmenter.channels_ == tuple(names)
    turned, wider = table[names[::-1]], Table(["more", *names], np.hstack([x[:, :1], x]))
    for other in (
        segmenter.transform(turned),
        segmenter.transform(wider),
        segmenter.transform([turned])[0],
        segmenter.transform(x),
    ):
        assert all(map(np.array_equal, other, segmenter.transform(table)))
    with pytest.raises(hmrnn.InputError, match=r"^a series must have the columns sensor 0, .*; got other"):
        segmenter.predict(Table(["other", *names[1:]], x))
    with pytest.raises(hmrnn.InputError, match=r"object of shape \(2, 2\), in which machine must be left out"):
        segmenter.predict(Table(["x", "machine"], np.array([[1.0, "a"], [2.0, "a"]], object)))


@pytest.mark.parametrize("wrong", [
    {"segment_lengths": ()}, {"segment_lengths": (1, 3)}, {"updates": 0}, {"length": 0}, {"learning_rate": 0.0},
    {"on_copy": "never"}, {"mixtures": 0}, {"segment_lengths": 10}, {"segment_lengths": np.array(10)},
    {"segment_lengths": (4, np.inf)}, {"updates": 2.5}, {"updates": "2"}, {"updates": None}, {"n_init": True},
    {"hidden_size": 2.5}, {"learning_rate": np.inf}, {"learning_rate": "0.1"}, {"random_state": -1},
    {"random_state": "0"}, {"random_state": 0.5}, {"device": "nowhere"}, {"device": None}, {"device": "meta"},
])  # fmt: skip
def test_bad_parameters(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(hmrnn.InputError, match=rf"{name}\b"):
        HMSegmenter(**{**SMALL, **wrong}).fit(two_levels(100, 0)[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(hmrnn.InputError, match="the device is 'cuda', but this PyTorch sees no GPU; use cpu"):
        HMSegmenter(**SMALL, device="cuda").fit(two_levels(100, 0)[0])


def test_parameters_of_numpy_and_torch() -> None:
    x = two_levels(100, 0)[0]
    plain = HMSegmenter((4, 3), **SMALL).fit(x)
    same = HMSegmenter(
        np.array([4, 3]),  # type: ignore[arg-type]
        **{name: np.int64(value) for name, value in SMALL.items()},
        learning_rate=np.float32(0.02),  # type: ignore[arg-type]
        device=torch.device("cpu"),
        random_state=np.int64(0),  # type: ignore[arg-type]
    ).fit(x)
    assert same.loss_curve_ == pytest.approx(plain.loss_curve_)
    sizes = HMSegmenter((4, 3), **{**SMALL, "hidden_size": np.array([4, 5, 6])}).fit(x)
    assert sizes.network_.rnn.hidden_sizes == (4, 5, 6)


def test_random_states() -> None:
    x = two_levels(100, 0)[0]

    def losses(random_state: Any) -> list[float]:
        return HMSegmenter((4, 3), **SMALL, random_state=random_state).fit(x).loss_curve_

    assert losses(np.random.RandomState(0)) == losses(np.random.RandomState(0)) != losses(np.random.RandomState(1))
    assert losses(None) != losses(None)


def test_a_series_far_from_the_training_series_is_refused() -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    model = HMSegmenter(segment_lengths=(5,), updates=2, hidden_size=4).fit(x)
    for far in (1e16, -1e90):
        with pytest.raises(
            hmrnn.InputError, match=r"^a series must stay within 1e\+15 deviations of the training data; got"
        ):
            model.predict(np.vstack([x, [[far]]]))


def test_a_loss_that_is_not_finite_is_refused() -> None:
    model = HMSegmenter((4, 3), **SMALL, learning_rate=1e35)
    with pytest.raises(hmrnn.InputError, match=r"not finite at update . of 4; lower learning_rate"):
        model.fit(two_levels(100, 0)[0])
    assert not model.__sklearn_is_fitted__()


def test_set_params_changes_all_or_nothing() -> None:
    model = HMSegmenter()
    with pytest.raises(hmrnn.InputError, match="no parameter 'foo'"):
        model.set_params(updates=5, foo=1)
    assert model.updates == 300


def test_repr_of_arrays_and_of_a_subclass() -> None:
    class Own(HMSegmenter):
        pass

    assert repr(HMSegmenter(np.array([5, 3]))) == "HMSegmenter(segment_lengths=array([5, 3]))"  # type: ignore[arg-type]
    assert repr(Own(mixtures=2)) == "Own(mixtures=2)"
    with pytest.raises(NotFittedError, match="this Own is not fitted"):
        Own().predict(np.zeros((5, 1)))


def test_another_device_waits_for_the_next_fit(fitted: HMSegmenter) -> None:
    x = two_levels(150, 1)[0]
    moved = copy.deepcopy(fitted).set_params(device="meta")
    assert all(np.array_equal(a, b) for a, b in zip(moved.predict(x), fitted.predict(x)))


def test_other_channels_are_refused(fitted: HMSegmenter) -> None:
    with pytest.raises(hmrnn.InputError, match="fitted with 3"):
        fitted.predict(np.zeros((20, 2)))


def test_a_fit_that_fails_leaves_the_model_as_it_was(fitted: HMSegmenter) -> None:
    x = two_levels(150, 1)[0]
    model = copy.deepcopy(fitted)
    with pytest.raises(hmrnn.InputError, match="needs at least 18"):
        model.fit(np.arange(12.0)[:, None])
    assert model.n_features_in_ == 3
    assert all(np.array_equal(a, b) for a, b in zip(model.predict(x), fitted.predict(x)))


def test_scikit_learn_takes_it(fitted: HMSegmenter) -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import clone as sklearn_clone
    from sklearn.exceptions import NotFittedError as SklearnNotFittedError
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(sklearn_clone(fitted))
    x = two_levels(150, 1)[0]
    line = make_pipeline(StandardScaler(), HMSegmenter((4, 3), **SMALL))
    assert "HMSegmenter" in line._repr_html_()
    assert [ends[-1] for ends in line.fit(x).predict(x)] == [150, 150]
    assert "HMSegmenter" in line._repr_html_()
    search = GridSearchCV(line, {"hmsegmenter__updates": [1, 2]}, cv=2, error_score="raise").fit(x)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
