"""HMRegressor: what it learns, shapes and scales of its numbers, their deviation, saving, scikit-learn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.kinds.labels.answers.numbers import NumberScores, r_squared
from hmrnn.kinds.labels.batches import Batch
from hmrnn.kinds.labels.decision import shown_numbers
from hmrnn.kinds.labels.networks import LEAST, PlacedModel, PooledModel, SequenceModel
from hmrnn.kinds.labels.settings import PooledModelConfig
from labelled import NUMBERS, SENTENCES, SMALL, TEXTS, Table, series
from refusals import refused

ONE: dict[str, Any] = {**SMALL, "epochs": 1}


def test_regressor_learns_and_explains(regressor: hmrnn.HMRegressor) -> None:
    assert regressor.score(TEXTS, NUMBERS) > 0.8
    found = regressor.predict(["abab", "cd", "abx"])
    np.testing.assert_allclose(
        regressor.predict(["cd"])[0], found[1], rtol=1e-5
    )  # others in the batch have no influence
    (decision,) = regressor.explain(["abab"])
    assert decision.answer == pytest.approx(found[0], rel=1e-5)
    assert decision.weights.sum() == pytest.approx(1, rel=1e-5)
    deviation = regressor.model_.deviation[0]
    assert str(decision).startswith(f"answer  {decision.answer:.6g} ± {deviation:.6g}\nsegments  ")
    assert decision.to_dict()["deviation"] == deviation
    assert not hasattr(regressor, "classes_")


def test_the_deviation_is_that_of_the_errors_on_the_validation_part() -> None:
    X, _ = series()
    y = np.stack([[one[0, 0], 100 * one[-1, 1] + 7] for one in X])
    model = hmrnn.HMRegressor(**SMALL, validation_fraction=0.0).fit(X, y)  # the training part validates
    mean, deviation = model.predict(X, return_std=True)
    errors = np.sqrt(((mean - y) ** 2).mean(axis=0))
    np.testing.assert_allclose(deviation, np.broadcast_to(errors, (16, 2)), rtol=1e-5)
    weights = np.arange(16.0)
    weighed = hmrnn.HMRegressor(**ONE, validation_fraction=0.0).fit(X, y, sample_weight=weights)
    mean, deviation = weighed.predict(X, return_std=True)
    np.testing.assert_allclose(deviation[0], np.sqrt(np.average((mean - y) ** 2, axis=0, weights=weights)), rtol=1e-5)
    scaled = torch.from_numpy(errors / y.std(axis=0))
    assert min(model.loss_curve_) == pytest.approx(
        float((scaled.log() + 0.5 + math.log(2 * math.pi) / 2).sum()), rel=1e-5
    )


def test_numbers_of_steps(tmp_path: Path) -> None:
    X, _ = series()
    y = [np.stack([one.cumsum(axis=0)[:, 0], 7 + 0 * one[:, 0]], axis=1) for one in X]
    model = hmrnn.HMRegressor(**{**SMALL, "epochs": 4}, validation_fraction=0.0, learning_rate=0.02).fit(X, y)
    mean, deviation = model.predict(X, return_std=True)
    assert [one.shape for one in mean] == [one.shape for one in deviation] == [one.shape for one in y]
    errors = np.concatenate(mean) - np.concatenate(y)
    np.testing.assert_allclose(deviation[3][0], np.sqrt((errors**2).mean(axis=0)), rtol=1e-5)  # padding does not count
    heavy = np.arange(16.0)
    repeated = np.repeat(heavy, [len(one) for one in y])
    assert model.score(X, y, heavy) == r_squared(np.concatenate(mean), np.concatenate(y), repeated)
    np.testing.assert_allclose(model.predict(X[2:3])[0], mean[2], rtol=1e-5)
    many = model.explain(X)
    assert [one.weights.shape for one in many] == [(len(one), len(one)) for one in X]
    np.testing.assert_allclose(many[4].weights.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(many[4].weights, model.explain(X[4:5])[0].weights, atol=1e-5)
    assert str(many[4]).count(" from step") == len(X[4])
    for one, other in zip(hmrnn.load(model.save(tmp_path / "steps")).predict(X), mean):
        np.testing.assert_array_equal(one, other)
    alone = hmrnn.HMRegressor(**ONE).fit(X, [one[:, 0] for one in y])
    assert [one.shape for one in alone.predict(X)] == [(len(one),) for one in X]
    lists = np.empty(len(X), object)  # as a column of a table is
    lists[:] = [one[:, 0] for one in y]
    assert alone.score(X, lists) == alone.score(X, iter(lists)) == alone.score(X, [one[:, 0] for one in y])
    for wrong in (y, 5, []):
        with refused("y"):
            alone.score(X, wrong)
    with refused("read_out"):
        hmrnn.HMRegressor(**ONE, read_out="last").fit(X, y)


def test_numbers_of_tokens_are_read_at_their_spaces() -> None:
    model = hmrnn.HMRegressor(**ONE).fit(SENTENCES, [[len(token) for token in one] for one in SENTENCES])
    assert model.model_.reads.spelled
    assert [len(one) for one in model.predict(SENTENCES)] == [len(one) for one in SENTENCES]


def test_numbers_are_shown_to_a_thousandth_of_their_deviation() -> None:
    assert shown_numbers(1e9 + 7.76, 4.0) == "1000000007.76"
    assert shown_numbers([[1.23456789, -1e9], [0, 2e12]], [5.0, 1e6]) == "1.23457 -1e+09 0 2e+12"
    assert shown_numbers(1e100 / 3, 1e-3) == "3.3333333333333332e+99"


@pytest.mark.parametrize("kind", [PooledModel, PlacedModel])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_nats_are_those_of_gaussians_of_each_sequence_alone(kind: type[SequenceModel], bidirectional: bool) -> None:
    torch.manual_seed(0)
    config = PooledModelConfig(
        embedding_size=4, hidden_size=(5,), num_layers=2, output_size=6, bidirectional=bidirectional
    )
    model = kind(3, False, 2, config, numbers=True).double().eval()
    model.deviation.copy_(torch.tensor([0.5, 2.0]))
    lengths, steps = torch.tensor([7, 4, 1]), kind is PlacedModel
    counted = lengths if steps else torch.ones_like(lengths)
    x, N = torch.randn(7, 3, 3).double(), int(counted.max())
    batch = Batch(x, lengths, torch.randn(N, 3, 2).double(), counted, torch.arange(N)[:, None] * counted.gt(1), None)
    batch = batch._replace(places=batch.places * batch.asked, weights=torch.ones(3))
    judged = model(*batch)
    for b, (length, count) in enumerate(zip(lengths.tolist(), counted.tolist())):
        alone = Batch(*(a[..., b : b + 1] if a.dim() < 3 else a[:, b : b + 1] for a in batch))
        out, _ = model.encode(x[:length, b : b + 1], alone.lengths)
        errors = batch.targets[:count, b] - model.scores(out, alone._replace(places=alone.places[:count]))[0][:, 0]
        expected = (errors**2 / (2 * model.deviation**2) + (model.deviation * math.sqrt(2 * math.pi)).log()).sum()
        torch.testing.assert_close(judged.nats[b], expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(judged.squares[b], (errors**2).sum(0), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(judged.wrong[b], (errors**2).mean(1).sum(), rtol=1e-6, atol=1e-6)


def test_the_deviation_is_at_least_a_thousandth() -> None:
    config = PooledModelConfig(embedding_size=4, hidden_size=(5,), num_layers=2, output_size=6)
    model = PooledModel(3, False, 2, config, numbers=True)
    assert model.fit_deviation([0.0, 0.25]) == pytest.approx(math.log(2 * math.pi) + math.log(LEAST * 0.5) + 0.5)
    torch.testing.assert_close(model.deviation, torch.tensor([LEAST, 0.5]))


def test_answers_have_the_shape_of_y_and_follow_its_scale() -> None:
    X, _ = series()
    y = np.array([one[0, 0] for one in X])
    plain = hmrnn.HMRegressor(**ONE).fit(X, y)
    found = plain.predict(X)
    assert found.shape == (16,)
    rows = y[:, None]
    for given in (rows, rows.astype(object), Table(["y"], rows), [[one] for one in y], torch.from_numpy(rows)):
        np.testing.assert_allclose(hmrnn.HMRegressor(**ONE).fit(X, given).predict(X), found[:, None])
    large = hmrnn.HMRegressor(**ONE).fit(X, 1e6 * y - 5)
    np.testing.assert_allclose(large.predict(X), 1e6 * found - 5, rtol=1e-4)
    assert large.score(X, 1e6 * y - 5) == pytest.approx(plain.score(X, y), abs=1e-4)
    with refused("y"):
        plain.score(X, np.ones((16, 2)))


def test_a_constant_is_predicted() -> None:
    model = hmrnn.HMRegressor(**{**SMALL, "epochs": 6}, learning_rate=0.02).fit(TEXTS, [5] * 16)
    mean, deviation = model.predict(TEXTS, return_std=True)
    np.testing.assert_allclose(mean, 5, atol=0.5)
    assert (deviation > 0).all()


def test_scores_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(0)
    y, found, weights = rng.normal(size=(30, 3)), rng.normal(size=(30, 3)), rng.random(30)
    y[:, 2] = found[:, 2] = 4.0
    assert r_squared(found, y, weights) == pytest.approx(metrics.r2_score(y, found, sample_weight=weights))
    found[0, 2] = 5.0
    assert r_squared(found, y) == pytest.approx(metrics.r2_score(y, found))
    assert math.isnan(r_squared(found[:1], y[:1]))
    assert r_squared(np.zeros((12, 1)), np.full((12, 1), 0.1)) == 0  # though the mean of 12 times 0.1 is another
    assert r_squared(np.zeros((13, 1)), np.array([[0.1]] * 12 + [[5.0]]), [1.0] * 12 + [0.0]) == 0
    tiny = np.array([[1e-200], [2e-200]])  # whose squares are 0
    assert [r_squared(one, tiny) for one in (tiny, tiny + 1)] == [1, 0]
    scores = NumberScores.of(found, y, [1.0, 2.0, 3.0])
    assert scores.rmse == pytest.approx(metrics.root_mean_squared_error(y, found))
    assert scores.mae == pytest.approx(metrics.mean_absolute_error(y, found))
    always = np.broadcast_to([1.0, 2.0, 3.0], y.shape)
    assert scores.mean_rmse == pytest.approx(metrics.root_mean_squared_error(y, always))
    assert scores.mean_mae == pytest.approx(metrics.mean_absolute_error(y, always))
