"""HMForecaster: stretches and answers, what it learns, shapes, deviations, saving, errors."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.errors import InputError
from hmrnn.kinds.labels.answers.series import Forecasts, stretches
from hmrnn.kinds.labels.corpus import forecast_corpus, forecast_examples
from hmrnn.kinds.labels.encoder import LabelEncoder
from hmrnn.kinds.labels.estimators.base import NotFittedError
from labelled import SMALL, WAVE, Table
from refusals import refused

FAST: dict[str, Any] = {**SMALL, "steps": 3, "window": 16, "epochs": 1}


@pytest.fixture(scope="module")
def forecaster() -> hmrnn.HMForecaster:
    how = {**FAST, "hidden_size": 12, "epochs": 12, "learning_rate": 0.03}
    return hmrnn.HMForecaster(**how).fit(WAVE)


@pytest.mark.parametrize(
    ("length", "ahead", "window", "first"),
    [(200, 3, 16, 0), (200, 3, 16, 180), (12, 5, 64, 0), (7, 5, 64, 0), (50, 1, 2, 0), (90, 4, 15, 33)],
)
def test_each_step_is_answered_once_with_half_a_window_before_it(
    length: int, ahead: int, window: int, first: int
) -> None:
    parts = stretches(length, ahead, window, first)
    answered = np.concatenate(parts)
    last = length - ahead - 1
    least = max(first, min(window // 2, last // 2))
    assert sorted(answered) == list(range(least, last + 1))
    for places in parts:
        assert len(places) <= window - window // 2
        start = max(0, places[-1] + 1 - window)
        assert places[0] - start >= min(window // 2, places[0])
    twice = np.concatenate(stretches(length, ahead, window, first, overlap=2))
    assert set(twice) == set(answered)
    assert len(twice) >= len(answered)


def test_answers_are_the_changes_that_follow_and_validation_answers_are_new() -> None:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(length, 2)).cumsum(0) for length in (90, 41)]
    corpus = forecast_corpus(series, 4, 12, valid_fraction=0.2)
    numbers = corpus.spec.answer
    assert isinstance(numbers, Forecasts)
    assert (numbers.ahead, numbers.window, numbers.size, corpus.held_out) == (4, 12, 8, True)
    seen: dict[str, list[set[int]]] = {}
    for name, part in (("train", corpus.train), ("valid", corpus.valid)):
        seen[name] = [set(), set()]
        for item, read, targets, places in zip(part.sequences, part.inputs, part.targets, part.places):
            np.testing.assert_allclose(read, corpus.spec.encode(item))
            k = int(not any(np.array_equal(item, series[0][s : s + len(item)]) for s in range(90)))
            start = next(s for s in range(90) if np.array_equal(item, series[k][s : s + len(item)]))
            for place, changes in zip(places + start, numbers.decode(targets)):
                found = series[k][place] + changes.reshape(4, 2)
                np.testing.assert_allclose(found, series[k][place + 1 : place + 5], atol=1e-5)
                seen[name][k] |= set(range(place + 1, place + 5))
    assert not any(a & b for a, b in zip(seen["train"], seen["valid"]))
    assert [max(one) for one in seen["valid"]] == [89, 40]
    assert [min(one) for one in seen["valid"]] == [72, 33]  # the last fifth
    assert [max(one) for one in seen["train"]] == [71, 32]
    alone = forecast_corpus(series, 4, 12, valid_fraction=0)
    assert not alone.held_out
    assert max(len(item) for item in alone.train.sequences) == 12


def test_units_do_not_matter() -> None:
    x = np.stack([WAVE, np.cos(np.arange(200) / 3)], axis=1)
    one, other = (forecast_corpus([x * by + plus], 3, 12, valid_fraction=0.2) for by, plus in ((1, 0), (1000, 7)))
    for part, scaled in ((one.train, other.train), (one.valid, other.valid)):
        for read, same in zip((*part.inputs, *part.targets), (*scaled.inputs, *scaled.targets), strict=True):
            np.testing.assert_allclose(same, read, atol=1e-4)
    answered = one.valid.targets[0]
    found, larger = (cast(Forecasts, each.spec.answer).decode(answered) for each in (one, other))
    np.testing.assert_allclose(larger, 1000 * found, rtol=1e-6, atol=1e-4)


def test_it_learns_a_wave(forecaster: hmrnn.HMForecaster) -> None:
    assert forecaster.score(WAVE) > 0.9
    on = np.sin(np.arange(200, 203) / 3)
    ahead, deviation = forecaster.predict(WAVE, return_std=True)
    assert ahead.shape == deviation.shape == (3,)
    np.testing.assert_allclose(ahead, on, atol=0.25)
    untrained = hmrnn.HMForecaster(**FAST, learning_rate=1e-9).fit(WAVE)
    assert untrained.score(WAVE) < 0.3


def test_channels_count_in_score_in_their_deviations() -> None:
    x = np.stack([WAVE, 50 * np.cos(np.arange(200) / 2)], axis=1)
    model = hmrnn.HMForecaster(**FAST).fit(x).model_
    whole = forecast_examples(model.encoder, [x[:60]])
    targets, places = [one[-1:] for one in whole.targets], [one[-1:] for one in whole.places]
    last = dataclasses.replace(whole, targets=targets, places=places)
    changes = np.concatenate([model.answer.decode(one) for one in targets]).reshape(len(targets), 3, 2)
    found = np.stack(model.predict(whole.sequences)) - np.stack([item[-1:] for item in whole.sequences])
    unit = model.encoder.deviation
    skill = 1 - (((found - changes) / unit) ** 2).mean() / ((changes / unit) ** 2).mean()
    assert model.skill(last) == pytest.approx(skill, rel=1e-4)


def test_nothing_is_read_from_later_steps() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2)).cumsum(0)
    x[:30] *= 5
    corpus = forecast_corpus([x], 3, 12, valid_fraction=0.2)
    known = forecast_examples(corpus.spec, [x[:48]]).inputs
    np.testing.assert_allclose(np.concatenate(known).mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(known).std(0), 1, atol=1e-5)
    changed = x + (0, 100)  # the level of a channel is not read
    changed[48:] = 1e6
    other = forecast_corpus([changed], 3, 12, valid_fraction=0.2)
    np.testing.assert_allclose(other.spec.deviation, corpus.spec.deviation)
    for one, read in zip(other.train.inputs, corpus.train.inputs):
        np.testing.assert_allclose(one, read, atol=1e-5)
    for count in (11, 12):
        item = x[:count].copy()
        item[count // 2 + 1 :] = 7.0  # after the first place that answers
        before = corpus.spec.encode(x[:count])[: count // 2 + 1]
        np.testing.assert_array_equal(corpus.spec.encode(item)[: count // 2 + 1], before)
        np.testing.assert_allclose(corpus.spec.encode(x[:count] + (0, 100))[: count // 2 + 1], before, atol=1e-5)


def test_deviations_are_those_of_the_errors_on_the_held_out_end() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 2)).cumsum(0)
    model = hmrnn.HMForecaster(**{**FAST, "steps": 4}).fit(x)  # one answer is held out
    ahead, deviation = model.predict(x[:36], return_std=True)
    np.testing.assert_allclose(deviation, np.abs(ahead - x[36:]), rtol=1e-4)
    longer = hmrnn.HMForecaster(**{**FAST, "steps": 4}, validation_fraction=0.5).fit(x)
    assert not np.allclose(longer.predict(x[:36], return_std=True)[1], deviation)


def test_a_trend_goes_on() -> None:
    x = np.arange(120) * 2.0 + np.sin(np.arange(120))
    how = {**FAST, "hidden_size": 12, "epochs": 8, "learning_rate": 0.03}
    model = hmrnn.HMForecaster(**how).fit(x[:80])
    assert model.score(x[60:] + 1000) > 0.8
    np.testing.assert_allclose(model.predict(x[:110] + 1000), model.predict(x[:110]) + 1000, atol=1e-3)


def test_only_the_last_window_is_read(forecaster: hmrnn.HMForecaster) -> None:
    changed = WAVE.copy()
    changed[:184] = 9.0
    np.testing.assert_array_equal(forecaster.predict(changed), forecaster.predict(WAVE))
    changed[184] = 0.5
    assert not np.array_equal(forecaster.predict(changed), forecaster.predict(WAVE))


def test_no_more_is_read_than_training_showed() -> None:
    model = hmrnn.HMForecaster(**{**FAST, "window": 1000}).fit(WAVE[:40])
    assert model.model_.answer.window == 36
    np.testing.assert_array_equal(model.predict(WAVE), model.predict(WAVE[-36:]))


def test_shapes_lists_tables_and_channels_by_name() -> None:
    x = np.stack([WAVE, WAVE**2], axis=1)[:60]
    model = hmrnn.HMForecaster(**FAST).fit([Table(["a", "b"], x), Table(["b", "a"], x[:50, ::-1])])
    both = model.predict([x, x[:1]])  # the shortest has one step
    assert [one.shape for one in both] == [(3, 2), (3, 2)]
    np.testing.assert_allclose(model.predict(Table(["b", "a"], x[:, ::-1])), both[0], rtol=1e-5)
    assert model.n_features_in_ == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat = hmrnn.HMForecaster(**FAST).fit([WAVE[:60].astype(np.float32), torch.from_numpy(WAVE[:40])])
    assert [one.shape for one in flat.predict([WAVE[:60], WAVE[:40]])] == [(3,), (3,)]
    assert flat.predict(WAVE[:60, None]).shape == (3, 1)
    ahead, deviation = flat.predict([WAVE[:60].tolist()[k : k + 1] for k in range(60)], return_std=True)
    assert ahead.shape == deviation.shape == (3, 1)


@pytest.mark.parametrize(
    "make",
    [
        np.stack, lambda xs: torch.from_numpy(np.stack(xs)), lambda xs: np.stack(xs).tolist(), tuple, iter,
        lambda xs: [torch.from_numpy(x).requires_grad_() for x in xs], lambda xs: [xs[0].tolist(), xs[1]],
        lambda xs: np.array([xs[0], xs[1][:30], xs[1]], dtype=object)[[0, 2]],
    ],
)  # fmt: skip
def test_several_series_may_be_any_array(forecaster: hmrnn.HMForecaster, make: Any) -> None:
    xs = [WAVE[:60, None], WAVE[60:120, None]]
    for found, x in zip(forecaster.predict(make(xs)), xs, strict=True):
        np.testing.assert_allclose(found, forecaster.predict(x), rtol=1e-5)
    half = torch.from_numpy(xs[0]).bfloat16()
    np.testing.assert_array_equal(forecaster.predict(half), forecaster.predict(half.double().numpy()))


def test_explain_gives_segments_and_weights_of_what_was_read(forecaster: hmrnn.HMForecaster) -> None:
    (decision,) = forecaster.explain(WAVE)
    np.testing.assert_allclose(decision.answer, forecaster.predict(WAVE), rtol=1e-5)
    assert decision.weights.shape == (16,)
    assert decision.weights.sum() == pytest.approx(1, rel=1e-5)
    assert decision.segmentation.ends(1)[-1] == 16
    assert "±" in str(decision)


def test_saved_and_loaded(forecaster: hmrnn.HMForecaster, tmp_path: Path) -> None:
    again = hmrnn.HMForecaster.load(forecaster.save(tmp_path / "wave"))
    assert (again.steps, again.window, again.hidden_size) == (3, 16, 12)
    assert again.score(WAVE) == forecaster.score(WAVE)
    data = forecaster.model_.encoder.to_dict()
    for change in ({"kind": "numbers"}, {"ahead": 2}, {"window": 1}):
        with pytest.raises(InputError):
            LabelEncoder.from_dict({**data, "answer": {**data["answer"], **change}})


@pytest.mark.parametrize(
    ("change", "x", "named"),
    [
        ({"steps": 0}, WAVE, "steps"),
        ({"window": 1}, WAVE, "window"),
        ({"validation_fraction": None}, WAVE, "validation_fraction"),
        ({"steps": 30}, WAVE[:61], "X[0]"),
        ({"validation_fraction": 0.9}, WAVE[:40], "X[0]"),
        ({"rnn": "lstm", "rates": (0.5,)}, WAVE, "rates"),
        ({}, [WAVE, WAVE[:7]], "X[1]"),
        ({}, "text", "X"),
        ({}, [[1.0, 2.0], [3.0]], "X"),
        ({}, np.zeros(1), "X"),
        ({}, [np.zeros((50, 1)), np.zeros((50, 2))], "X[1]"),
    ],
)
def test_errors_of_fit(change: dict[str, Any], x: Any, named: str) -> None:
    with refused(named):
        hmrnn.HMForecaster(**{**FAST, **change}).fit(x)


def test_errors_of_a_fitted_one(forecaster: hmrnn.HMForecaster) -> None:
    for wrong in (np.zeros((20, 2)), np.append(WAVE, 1e17)):
        with pytest.raises(InputError):
            forecaster.predict(wrong)
    with refused():
        forecaster.score(WAVE[:3])
    with pytest.raises(NotFittedError):
        hmrnn.HMForecaster().predict(WAVE)
    shortest = hmrnn.HMForecaster(**FAST).fit(WAVE[:8])
    assert np.isfinite(shortest.score(WAVE[:4]))


@pytest.mark.parametrize(("level", "other"), [(0.0, 0.0), (0.1, 0.0), (1e-6, 1.0), (-5e7, 1.0)])
def test_what_never_changes_is_forecast_as_it_is(level: float, other: float) -> None:
    x = np.stack([np.full(60, level), other * WAVE[:60]], axis=1)
    model = hmrnn.HMForecaster(**FAST).fit(x)
    np.testing.assert_allclose(model.predict(x)[:, 0], level, rtol=1e-5, atol=1e-5 * (level == 0))
    line = np.arange(60.0)
    steady = hmrnn.HMForecaster(**FAST, rnn="lstm").fit(line)
    np.testing.assert_allclose(steady.predict(line), [60, 61, 62], rtol=1e-4)
    x[-2:, 0] += 1  # in the held-out part
    assert np.isfinite(hmrnn.HMForecaster(**FAST).fit(x).model_.deviation).all()
