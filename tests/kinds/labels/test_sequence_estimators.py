"""HMClassifier, HMTagger and HMTransducer: fit, answers, weights, saving, scikit-learn."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hmrnn
from hmrnn.cli.settings import train_arguments
from hmrnn.errors import InputError
from hmrnn.kinds.labels import corpus as labelled_corpus
from hmrnn.kinds.labels.estimators import sequences
from labelled import FIT, LABELS, SENTENCES, SMALL, SOUNDS, TAGS, TEXTS, WORDS, series
from refusals import refused


def test_classifier_learns_and_explains(classifier: hmrnn.HMClassifier) -> None:
    assert classifier.classes_.tolist() == ["first", "second"]
    assert classifier.score(TEXTS, LABELS) == 1.0
    assert classifier.predict(["abab", "cdcd"]).tolist() == ["first", "second"]
    chances = classifier.predict_proba(["abab", "cd", "abx"])
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    alone = classifier.predict_proba(["cd"])[0]
    np.testing.assert_allclose(alone, chances[1], atol=1e-6)  # others in the batch have no influence
    decision = classifier.explain(["ababab"])[0]
    assert decision.answer == "first"
    assert decision.weights is not None
    np.testing.assert_allclose(decision.weights.sum(), 1, rtol=1e-5)
    assert "".join(part.text for part in decision.parts()) == "ababab"
    assert sum(part.weight for part in decision.parts()) == pytest.approx(1, rel=1e-5)
    most = max(decision.parts(), key=lambda part: part.weight)
    where = f"step {most.end}" if most.end == most.start + 1 else f"steps {most.start + 1} to {most.end}"
    assert f"{most.weight:6.1%}  {most.text!r}, {where}" in decision.render().splitlines()[3]
    assert decision.render().startswith("answer  first\n")
    assert decision.to_dict()["levels"][0]["ends"][-1] == 6
    assert len(classifier.loss_curve_) == classifier.n_iter_ <= 12


def test_the_best_epoch_is_kept(classifier: hmrnn.HMClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(classifier.loss_curve_) < classifier.loss_curve_[0]
    after: list[dict[str, torch.Tensor]] = []

    def watched(trainer: Any, *rest: Any) -> Any:
        for event in train(trainer, *rest):
            if event["event"] == "valid":
                after.append(copy.deepcopy(trainer.model.state_dict()))
            yield event

    train = sequences.train
    monkeypatch.setattr(sequences, "train", watched)
    how: Any = {**SMALL, "epochs": 30, "validation_fraction": 0.1}
    stopped = hmrnn.HMClassifier(**how, learning_rate=0.9, patience=1).fit(TEXTS, LABELS)
    assert len(after) == stopped.n_iter_ < 30
    best = after[int(np.argmin(stopped.loss_curve_))]
    assert best is not after[-1]
    torch.testing.assert_close(dict(stopped.model_.network.state_dict()), dict(best), rtol=0, atol=0)


ESTIMATORS = [hmrnn.HMClassifier, hmrnn.HMRegressor, hmrnn.HMForecaster, hmrnn.HMTagger, hmrnn.HMTransducer]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_defaults_are_those_of_the_command(kind: Any) -> None:
    command = train_arguments([kind._modality, "reviews.tsv"]).config
    t = command.train
    config = kind(random_state=t.seed)._config()
    quiet = {"log_every": t.log_every, "checkpoint_every": t.checkpoint_every, "device": t.device}
    assert dataclasses.replace(config.train, **quiet) == t
    assert (config.model, config.regularise, config.detectors) == (
        command.model, command.regularise, command.detectors
    )  # fmt: skip
    assert kind().validation_fraction in (None, command.data.valid_fraction)


def test_nothing_is_held_out_of_few_sequences_and_all_epochs_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = []

    def watched(*given: Any, **how: Any) -> Any:
        corpora.append(labelled_corpus.make_corpus(*given, **how))
        return corpora[-1]

    monkeypatch.setattr(sequences, "make_corpus", watched)
    monkeypatch.setattr(labelled_corpus, "FEW", 2 * len(TEXTS))
    how: Any = {**SMALL, "epochs": 4, "learning_rate": 0.5, "patience": 1}
    fitted = hmrnn.HMClassifier(**how).fit(TEXTS, LABELS)
    assert min(fitted.loss_curve_[1:3]) > fitted.loss_curve_[0]  # of a part that is held out, this would be the end
    assert fitted.n_iter_ == 4
    assert fitted.model_.config.train.patience == 1  # which load gives back
    assert (corpora[0].held_out, len(corpora[0].train)) == (False, len(TEXTS))
    hmrnn.HMClassifier(**how).fit(2 * TEXTS, 2 * LABELS)
    assert corpora[1].held_out
    assert len(corpora[1].train) + len(corpora[1].valid) == 2 * len(TEXTS)


def test_a_baseline_has_no_rates_and_attends_to_steps() -> None:
    lstm = hmrnn.HMTransducer(rnn="lstm")._config()
    assert (lstm.model.attend, lstm.detectors.rates) == ("steps", ())


HOW: list[dict[str, Any]] = [
    {"read_out": "mean"}, {"read_out": "max"}, {"read_out": "last"}, {"attend": "segments"}, {"rnn": "lstm"},
    {"bidirectional": True}, {"bidirectional": True, "attend": "segments"}, {"rnn": "gru", "bidirectional": True},
]  # fmt: skip


def test_a_tree_reads_the_hierarchy(tmp_path: Path) -> None:
    """The tree-LSTM over the gated outputs; it learns, is saved with its numbers, and says what decided."""
    how = {**SMALL, "num_layers": 3, "epochs": 12}
    model = hmrnn.HMClassifier(**how, read_out="tree", learning_rate=0.02).fit(TEXTS, LABELS)
    assert model.score(TEXTS, LABELS) == 1.0
    again = hmrnn.load(model.save(tmp_path / "tree")).predict_proba(TEXTS)
    np.testing.assert_array_equal(again, model.predict_proba(TEXTS))
    np.testing.assert_allclose(model.predict_proba(TEXTS[3:4]), again[3:4], atol=1e-6)
    (decision,) = model.explain(["ababab"])
    assert decision.answer == "first"
    assert sum(part.weight for part in decision.parts()) == pytest.approx(1, rel=1e-5)
    with pytest.raises(InputError):
        decision.sources()


@pytest.mark.parametrize("how", HOW, ids=str)
def test_read_outs_and_networks(how: dict[str, Any]) -> None:
    X, y = series()
    model = hmrnn.HMClassifier(**{**SMALL, "epochs": 1}, **how).fit(X, y)
    assert model.n_features_in_ == 2
    assert model.predict(X).dtype == y.dtype
    decision = model.explain(X[:2])[1]
    assert decision.weights is not None
    assert decision.weights.sum() == pytest.approx(1, rel=1e-5)
    assert all(re.fullmatch(r"step \d+|steps \d+ to \d+", part.text) for part in decision.parts())
    if how == {"read_out": "last"}:
        assert decision.weights[-1] == 1
    if how == {"attend": "segments"}:
        ends = [part.end - 1 for part in decision.parts()]
        assert decision.weights[ends].sum() == pytest.approx(1, rel=1e-5)


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone() -> None:
    X, y = series()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same = (hmrnn.HMClassifier(**SMALL, random_state=3).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_interrupted_fit_raises_and_changes_nothing(
    classifier: hmrnn.HMClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.copy(classifier)
    monkeypatch.setattr(model, "_show", lambda *_: signal.raise_signal(signal.SIGINT), raising=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(TEXTS, LABELS)
    assert model.model_ is classifier.model_


@pytest.mark.parametrize(("share", "part"), [(0.0, "training part"), (0.1, "validation")])
def test_progress_is_shown_on_request(share: float, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    hmrnn.HMClassifier(**SMALL, verbose=True, validation_fraction=share).fit(*series())
    lines = [line.split("  ") for line in capsys.readouterr().err.splitlines()]
    assert [line[0] for line in lines] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert all(line[1].startswith(part) and "boundary rates" in line[1] for line in lines)


def test_sequences_of_weight_0_have_no_influence() -> None:
    X, y = series()
    weights = np.where(np.arange(16) < 12, 1.0, 0.0)
    swapped = np.where(np.arange(16) < 12, y, 1 - y)
    how: Any = {**SMALL, "validation_fraction": 0.0, "batch_size": 16}
    one, other = (hmrnn.HMClassifier(**how).fit(X, labels, sample_weight=weights) for labels in (y, swapped))
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)
    plain = hmrnn.HMClassifier(**how).fit(X, swapped)
    assert np.abs(plain.predict_proba(X) - one.predict_proba(X)).max() > 1e-4


def test_class_weight_moves_the_answers() -> None:
    X, y = series()
    heavy = hmrnn.HMClassifier(**{**SMALL, "epochs": 4}, class_weight={1: 50.0}, learning_rate=0.02).fit(X, y)
    assert heavy.predict(X).mean() > 0.9


def test_tagger(tagger: hmrnn.HMTagger) -> None:
    assert tagger.classes_.tolist() == ["D", "N", "V"]
    chances = tagger.predict_proba([["a", "cat", "new"], ["dog"]])
    assert [one.shape for one in chances] == [(3, 3), (1, 3)]
    np.testing.assert_allclose(chances[0].sum(axis=1), 1, rtol=1e-5)
    assert tagger.score(SENTENCES, TAGS) > 0.6
    decision = tagger.explain([["the", "cat"]])[0]
    assert len(decision.answer) == 2
    assert decision.segmentation.text == "the cat "
    assert decision.weights.shape == (2, 8)
    np.testing.assert_allclose(decision.weights.sum(axis=1), 1, rtol=1e-5)
    assert "segments" in str(decision)
    assert str(decision).count(" from ") == 2
    many = tagger.explain([["the", "cat"], SENTENCES[0], ["dog"]])
    np.testing.assert_allclose(many[0].weights, decision.weights, atol=1e-5)  # padding has no influence
    assert many[2].weights.shape == (1, 4)


def test_weights_of_tags_are_shares_of_gradient_times_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the definition, for one tag at a time; of more tags than are weighed, neighbours share their weights."""
    X = [np.random.default_rng(k).normal(size=(5 + k, 2)) for k in range(12)]
    model = hmrnn.HMTagger(**SMALL).fit(X, [(one[:, 0] > 0).astype(int) for one in X])
    (decision,) = model.explain(X[:1])
    network, read = model.model_.network, None
    with torch.no_grad():
        read = network.channels(torch.from_numpy(model.model_.reads.encode(X[0]))[:, None]).tanh()
    read.requires_grad_()
    out, _ = network.rnn(read)
    scores = network.softmax(network.output(out.hidden))[:, 0]  # (T, tags)
    chosen = scores[range(5), [model.classes_.tolist().index(tag) for tag in decision.answer]]
    for n in range(5):
        (slope,) = torch.autograd.grad(chosen[n], read, retain_graph=True)
        want = (slope * read).sum(-1)[:, 0].abs().detach()
        np.testing.assert_allclose(decision.weights[n], want / want.sum(), atol=1e-4)
    monkeypatch.setattr("hmrnn.kinds.labels.networks.WEIGHED", 2)
    (shared,) = model.explain(X[:1])
    np.testing.assert_array_equal(shared.weights[[0, 3]], shared.weights[[2, 4]])
    assert abs(shared.weights[0] - shared.weights[3]).max() > 1e-3


def test_tagger_of_series() -> None:
    X, _ = series()
    y = [(one[:, 0] > 1).astype(int) for one in X]
    model = hmrnn.HMTagger(**SMALL).fit(X, y)
    assert [len(tags) for tags in model.predict(X)] == [len(one) for one in X]


def test_transducer(transducer: hmrnn.HMTransducer) -> None:
    assert transducer.classes_.tolist() == ["A", "B"]
    written = transducer.predict(["abab", "b"])
    assert all(set(one) <= {"A", "B"} for one in written)
    wide = copy.copy(transducer).set_params(beam=4)
    assert len(wide.predict(["abab", "b"])) == 2
    assert 0 <= transducer.score(WORDS, SOUNDS) <= 1
    assert transducer.error_rate(WORDS, SOUNDS) >= 0
    decision = transducer.explain(["abab"])[0]
    assert decision.weights is not None
    assert decision.weights.shape == (len(decision.answer), 4)
    np.testing.assert_allclose(decision.weights.sum(axis=1), 1, rtol=1e-5)
    assert len(decision.sources()) == len(decision.answer)
    text = hmrnn.HMTransducer(**{**SMALL, "epochs": 1}).fit(WORDS, [word.upper() for word in WORDS])
    assert isinstance(text.predict(["ab"])[0], str)


@pytest.mark.parametrize(("name", "X", "y"), FIT)
def test_saved_copied_and_pickled_ones_answer_the_same(
    name: str, X: Any, y: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kind = getattr(hmrnn, name)
    model = kind(**{**SMALL, "epochs": 1}).fit(X, y)
    place = model.save("~/at home")
    assert place == tmp_path / "at home"
    assert {path.suffix for path in place.iterdir()} <= {".json", ".safetensors", ".md"}
    loaded = kind.load("~/at home")
    assert loaded.get_params()["hidden_size"] == 6
    for other in (hmrnn.load(place), loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_equal(other.predict(X), model.predict(X))
    with refused():
        model.save(place)
    with pytest.raises(InputError):
        (hmrnn.HMRegressor if kind is not hmrnn.HMRegressor else hmrnn.HMTagger).load(place)


@pytest.mark.parametrize(
    ("kind", "X", "y"),
    [(hmrnn.HMClassifier, *series()), (hmrnn.HMTagger, SENTENCES, TAGS), (hmrnn.HMTransducer, WORDS, SOUNDS)],
)
def test_scikit_learn_takes_it(kind: Any, X: Any, y: Any) -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = kind(**{**SMALL, "epochs": 1})
    assert is_classifier(model) == (kind is hmrnn.HMClassifier)
    assert clone(model).get_params() == model.get_params()
    search = GridSearchCV(model, {"hidden_size": [4, 5]}, cv=2).fit(X, y)
    assert search.best_params_["hidden_size"] in (4, 5)
    pipeline = Pipeline([("turn", FunctionTransformer(lambda many: [one[::-1] for one in many])), ("label", model)])
    assert len(pipeline.fit(X, y).predict(X)) == len(X)
    assert pipeline.set_params(label__epochs=2).get_params()["label__epochs"] == 2


def test_weights_are_routed_where_they_are_asked_for() -> None:
    import sklearn
    from sklearn.base import clone
    from sklearn.exceptions import UnsetMetadataPassedError
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    weights, model = [1.0, 2.0] * 8, hmrnn.HMClassifier(**SMALL)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError):
            make_pipeline(FunctionTransformer(), model).fit(TEXTS, LABELS, sample_weight=weights)
        asking = clone(model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True))
        pipeline = make_pipeline(FunctionTransformer(), asking).fit(TEXTS, LABELS, sample_weight=weights)
        own = asking.fit(TEXTS, LABELS, sample_weight=weights)
        np.testing.assert_array_equal(pipeline.predict_proba(TEXTS), own.predict_proba(TEXTS))
        assert pipeline.score(TEXTS, LABELS, sample_weight=weights) == own.score(TEXTS, LABELS, weights)
        asking.set_score_request(sample_weight=False)
        cross_validate(asking, np.array(TEXTS), LABELS, cv=2, params={"sample_weight": weights}, error_score="raise")
    with pytest.raises(TypeError):
        model.set_fit_request(weights=True)


def test_a_column_of_texts_comes_through_a_column_transformer() -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    X = np.array([[text, len(text)] for text in TEXTS], object)
    own = hmrnn.HMClassifier(**SMALL).fit(TEXTS, LABELS).predict_proba(TEXTS)
    choose = ColumnTransformer([("text", "passthrough", [0])])
    pipeline = make_pipeline(choose, hmrnn.HMClassifier(**SMALL)).set_output(transform="default").fit(X, LABELS)
    np.testing.assert_array_equal(pipeline.predict_proba(X), own)

    language = hmrnn.load("novel-small")
    vectors = FunctionTransformer(lambda texts: np.stack([language.embed(text).text for text in texts]))
    beside = ColumnTransformer([("text", vectors, 0), ("length", StandardScaler(), [1])])
    assert make_pipeline(beside, LogisticRegression()).fit(X, LABELS).score(X, LABELS) == 1.0
