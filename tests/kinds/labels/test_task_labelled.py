"""LabelledTask: few shapes of batches, and losses that a CUDA graph can compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import hmrnn
from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import make_corpus
from hmrnn.nn import output, recurrent
from hmrnn.nn.baselines import recurrent as baselines
from hmrnn.training.task import chances, flat_directions
from hmrnn.training.trainer import Trainer

WORDS = ["ab", "ba", "abb", "bab", "aab", "bbaab", "abbabba"] * 4
TARGETS: dict[str, Any] = {
    "labels": [word[0] for word in WORDS],
    "tags": [list(word.upper()) for word in WORDS],
    "pairs": [list(word.upper()) for word in WORDS],
    "numbers": [float(len(word)) for word in WORDS],
    "steps": [[float(k) for k in range(len(word))] for word in WORDS],
}
ESTIMATORS: dict[str, Any] = {
    "labels": hmrnn.HMClassifier, "tags": hmrnn.HMTagger, "pairs": hmrnn.HMTransducer, "numbers": hmrnn.HMRegressor,
    "steps": hmrnn.HMRegressor,
}  # fmt: skip


def trainer(kind: str, device: str = "cpu", longest: int = 9, **how: Any) -> Trainer:
    """A new one, for words of at most ``longest`` symbols."""
    given = [(word, target) for word, target in zip(WORDS, TARGETS[kind]) if len(word) <= longest]
    model = ESTIMATORS[kind](hidden_size=6, num_layers=2, embedding_size=4, epochs=9, batch_size=8, **how)
    modality: Any = ESTIMATORS[kind]._modality
    corpus = make_corpus(modality, *map(list, zip(*given)), valid_fraction=0.1)
    return Trainer(model._config(), corpus, torch.device(device))


def test_batches_that_are_alike_hold_the_same_sequences_in_few_shapes() -> None:
    examples = make_corpus("pairs", WORDS, TARGETS["pairs"], valid_fraction=0).train
    plain, alike = (LabelBatches(examples, 5, seed=1, alike=alike) for alike in (False, True))
    for k in range(len(plain)):
        one, other = plain.batch(3, k), alike.batch(3, k)
        T, N, B = len(one.inputs), len(one.targets), len(one.weights)
        assert other.inputs.shape in ((4, 5), (8, 5))
        assert other.targets.shape in ((4, 5), (8, 5))
        for name in ("inputs", "targets", "places"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[: T if name == "inputs" else N, :B])
        for name in ("lengths", "counted", "weights"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[:B])
        assert not other.weights[B:].any()
    one_label = LabelBatches(make_corpus("labels", WORDS, TARGETS["labels"]).train, 5, alike=True).batch(0, 0)
    assert one_label.targets.shape == (1, 5)


@pytest.mark.parametrize(
    ("kind", "how", "rnn"),
    [
        ("labels", {"attend": "segments", "bidirectional": True}, "hm-lstm"),
        ("labels", {"bidirectional": True}, "lstm"), ("labels", {"read_out": "max"}, "lstm"),
        ("tags", {"crf": True}, "hm-lstm"), ("tags", {}, "gru"), ("pairs", {}, "hm-lstm"), ("pairs", {}, "lstm"),
        ("numbers", {}, "hm-lstm"), ("steps", {}, "lstm"),
    ],
)  # fmt: skip
def test_losses_do_not_depend_on_values_that_cannot_be_read(
    kind: str, how: dict[str, Any], rnn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a CUDA graph no value can be read; fake tensors, which have none, refuse it, too."""
    run = trainer(kind, longest=3, rnn=rnn, **how)
    assert run.task.capturable
    run.task.batches.alike = True  # type: ignore[attr-defined]
    batch = run.task.batch(0, 0)
    losses = [run.task.loss(run.model.eval(), batch, None).value]
    for module in (output, recurrent, baselines):
        monkeypatch.setattr(module, "readable", lambda a: False)
    losses.append(run.task.loss(run.model.eval(), batch, None).value)
    torch.testing.assert_close(*losses)
    for one in getattr(run.model.rnn, "directions", (run.model.rnn,)):
        one.engine = "reference"  # the others read numbers
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        loss = run.task.loss(run.model.train(), tuple(mode.from_tensor(a) for a in batch), None)
        loss.value.backward()


def test_detectors_of_both_directions_that_hold_on_copy() -> None:
    """They have no chance to fire on COPY of their own layer and direction, and elsewhere the chance that they say."""
    rnn = hmrnn.HMLSTM(3, 4, 3, bidirectional=True, on_copy="hold")
    out, _ = rnn(torch.randn(20, 6, 3))
    copied = out.operations[:, :, :-1] == hmrnn.Operation.COPY  # (T, B, L-1, 2)
    assert 0 < copied[:, :, 1].float().mean() < 1
    likely = chances(flat_directions(out), rnn).unflatten(-1, (2, 2)).movedim(-1, -2)
    torch.testing.assert_close(likely, out.probabilities * ~copied)


def test_trees_are_not_captured() -> None:
    assert not trainer("labels", read_out="tree").task.capturable


def learned(kind: str, rnn: str, captured: bool) -> tuple[Tensor, list[Tensor], int]:
    """Losses and rates, summed up, and weights after 30 updates on a GPU; how many graphs there are."""
    how: dict[str, Any] = {"crf": True} if kind == "tags" else {}
    if rnn == "hm-lstm" and kind in ("labels", "pairs", "numbers"):
        how = {"attend": "segments"}
    run = trainer(kind, "cuda", rnn=rnn, dropout=0.0, **how)  # what is dropped would depend on the padding
    if not captured:
        run.captured = None
    sums = []
    for _ in range(30):
        run.step()
        sums.append(run.window.cpu().clone())
    kinds = run.captured.kinds.values() if run.captured is not None else ()
    return (
        torch.stack(sums),
        [p.detach().cpu() for p in run.model.parameters()],
        sum(k.graph is not None for k in kinds),
    )


@pytest.mark.gpu
@pytest.mark.parametrize("rnn", ["hm-lstm", "lstm", "gru"])
@pytest.mark.parametrize("kind", ["labels", "tags", "pairs", "numbers", "steps"])
def test_captured_updates_learn_what_updates_learn_that_are_run(kind: str, rnn: str) -> None:
    captured, run = (learned(kind, rnn, how) for how in (True, False))
    assert captured[2] > 0
    assert run[2] == 0
    torch.testing.assert_close(captured[0][:8], run[0][:8], rtol=1e-3, atol=1e-5)
    for mine, theirs in zip(captured[1], run[1]):
        assert (mine - theirs).norm() <= 0.05 * theirs.norm() + 1e-3
