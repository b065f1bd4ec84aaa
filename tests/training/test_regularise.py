"""Masks and what they spare, decay, the average of the weights, and how settings reach a model."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hmrnn
import tiny
from hmrnn import checkpoint, ops
from hmrnn.config import ModelConfig, RegulariseConfig
from hmrnn.errors import InputError
from hmrnn.kinds.labels.networks import PooledModel
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.dropout import drop_units, drop_weights
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.predictor import GatedOutput
from hmrnn.ops import LayerWeights
from hmrnn.pretrained import train as commands
from hmrnn.training.metrics import read_metrics
from hmrnn.training.prepare import prepare
from hmrnn.training.terms.weights import Average, Decay, decay
from refusals import refused

ALL = {"weight_drop": 0.3, "dropout_embedding": 0.2, "dropout_between": 0.4, "dropout_output": 0.3, "weight_decay": 0.5}


def seeded(function: Any, *arguments: Any, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    return function(*arguments)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_weights_are_dropped_one_by_one(p: float) -> None:
    matrix = 1 + torch.rand(2001, 50)
    matrix.requires_grad_()
    got = seeded(drop_weights, matrix, p, 2000)
    factor = (got / matrix).detach()
    assert torch.equal(factor[2000:], torch.ones(1, 50))
    kept = factor[:2000] > 0
    torch.testing.assert_close(factor[:2000][kept], torch.full((int(kept.sum()),), 1 / (1 - p)))
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.01)  # 10⁵ draws: a deviation of 0.0016
    assert float(factor.mean()) == pytest.approx(1, abs=0.02)
    assert not torch.equal(kept[0], kept[1])
    (gradient,) = torch.autograd.grad(got.sum(), matrix)
    torch.testing.assert_close(gradient, factor)
    assert torch.equal(seeded(drop_weights, matrix, p, 2000), got)
    assert not torch.equal(seeded(drop_weights, matrix, p, 2000, seed=4), got)


def test_units_are_dropped_for_all_steps_of_a_sequence() -> None:
    x = 1 + torch.rand(7, 40, 500)
    factor = seeded(drop_units, x, 0.5) / x
    assert torch.equal(factor.round(), factor[:1].round().expand_as(factor))
    assert set(factor.round().unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(factor[0, 0].round(), factor[0, 1].round())
    assert float(factor.mean()) == pytest.approx(1, abs=0.03)


def used_by(monkeypatch: pytest.MonkeyPatch, rnn: HMLSTM) -> tuple[list[LayerWeights], list[Tensor] | None]:
    """The weights that a pass of ``rnn`` hands to the engine, and what the gates see of the layers below."""
    used: list[tuple[list[LayerWeights], list[Tensor] | None]] = []
    run = ops.hmlstm

    def note(inputs: Tensor, weights: Sequence[LayerWeights], *arguments: Any, **options: Any) -> Any:
        used.append((list(weights), options.get("seen")))
        return run(inputs, weights, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ops, "hmlstm", note)
        rnn(torch.randn(3, 2, rnn.input_size))
    return used[0]


def test_a_network_drops_gate_rows_and_spares_its_detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = HMLSTM(40, (30, 20, 25), weight_drop=0.5, dropout=0.5, layer_norm=True)
    layers, seen = used_by(monkeypatch, rnn)
    for w, used in zip(rnn.layers(), layers):
        gates = 4 * w.hidden_size
        for name in ("U", "V") if w.has_detector else ("U",):
            dropped, whole = getattr(used, name), getattr(w, name)
            assert set((dropped / whole)[:gates].round().unique().tolist()) == {0.0, 2.0}
            assert torch.equal(dropped[gates:], whole[gates:])
        for name in ("W", "b", "gain_U", "gain_W", "gain_V", "gain_c", "bias_c"):
            assert getattr(used, name) is getattr(w, name)
    assert seen is not None
    assert [a.shape for a in seen] == [(2, 30), (2, 20)]  # one mask for each sequence; below the first layer is none
    assert all(set(a.unique().tolist()) == {0.0, 2.0} for a in seen)
    assert not torch.equal(seen[0][0], seen[0][1])
    again = used_by(monkeypatch, rnn)[1]
    assert again is not None
    assert not torch.equal(seen[0], again[0])
    layers, seen = used_by(monkeypatch, rnn.eval())
    assert seen is None
    for used, layer in zip(layers, rnn.layers()):
        assert all(mine is theirs for mine, theirs in zip(used, layer))
    assert "weight_drop=0.5, dropout=0.5" in repr(rnn)


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_shares_that_leave_nothing(value: float) -> None:
    for name in ("weight_drop", "dropout"):
        with refused(name):
            HMLSTM(3, 4, **{name: value})
        with refused(name):
            HMLSTM(3, 4, **{name: "half"})  # type: ignore[arg-type]


def test_the_output_module_drops_units_of_each_sequence() -> None:
    output = GatedOutput((6, 5), 8, dropout=0.5)
    hidden = [torch.randn(7, 3, size) for size in (6, 5)]
    got = seeded(output, hidden)
    torch.manual_seed(3)
    thinned = [drop_units(h, 0.5) for h in hidden]
    plain = copy.deepcopy(output).eval()
    assert torch.equal(got, plain(thinned))
    assert not torch.equal(got, plain(hidden))
    assert torch.equal(output.eval()(hidden), plain(hidden))


def test_the_embedding_is_dropped_or_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(embedding_size=40, hidden_size=(6,), num_layers=2, output_size=5)
    model = LanguageModel(9, config)
    symbols = torch.randint(9, (5, 3))
    seen: list[tuple[Tensor, Any]] = []
    forward = model.rnn.forward

    def note(x: Tensor, *arguments: Any, embedding: Tensor | None = None) -> Any:
        seen.append((x, embedding))
        return forward(x, *arguments, embedding=embedding)

    monkeypatch.setattr(model.rnn, "forward", note)
    model(symbols)
    model.dropout_embedding = 0.5
    model(symbols)
    model.eval()(symbols)
    for x, embedding in (seen[0], seen[2]):
        assert x is symbols
        assert embedding is model.embedding.weight
    x, embedding = seen[1]
    assert embedding is None
    factor = (x / model.embedding(symbols)).detach().round()
    assert set(factor.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(factor, factor[:1].expand_as(factor))


def test_settings_reach_the_model() -> None:
    model = tiny.trainer(tiny.config(**ALL)).model
    assert (model.rnn.weight_drop, model.rnn.dropout, model.output.dropout, model.dropout_embedding) == (
        0.3, 0.4, 0.3, 0.2,
    )  # fmt: skip
    plain = tiny.trainer(tiny.config()).model
    assert plain.rnn.weight_drop == plain.rnn.dropout == plain.output.dropout == plain.dropout_embedding == 0
    changed, same = (tiny.trainer(tiny.config(**c)).model.state_dict() for c in ({"bias": (0.5, -2.0)}, {}))
    for name, weight in same.items():
        if name in ("rnn.b.0", "rnn.b.1"):
            assert changed[name][-1] == (0.5 if name[-1] == "0" else -2.0)
            assert torch.equal(changed[name][:-1], weight[:-1])
        else:
            assert torch.equal(changed[name], weight)
    rnn = tiny.trainer(tiny.config(bias=(0.25,))).model.rnn
    assert [b[-1].item() for b in rnn.b[:2]] == [0.25, 0.25]
    with refused():
        rnn.set_detector_bias((1.0, 2.0, 3.0))


def test_settings_that_a_model_has_no_use_for() -> None:
    for name, values in (("bias", (0.5,)), ("rates", (0.5, 0.1))):
        for rnn in ("gru", "hrnn"):
            with refused(f"detectors.{name}"):
                tiny.trainer(tiny.config(rnn=rnn, **{name: values}))
    with refused("detectors.slope"):
        tiny.trainer(tiny.config(rnn="gru", slope=(0.1, 2.0)))
    strokes = HandwritingModel(StrokeModelConfig(hidden_size=(4,), output_size=4))
    prepare(strokes, tiny.config(dropout_output=0.25, dropout_between=0.5))
    assert (strokes.output.dropout, strokes.rnn.dropout) == (0.25, 0.5)
    with refused():
        prepare(strokes, tiny.config(dropout_embedding=0.2))
    both = tiny.changed(hmrnn.kind.presets()["labels"], rnn="ln-lstm", bidirectional=True, zoneout=0.2)
    model = PooledModel(3, True, 2, both.model)
    prepare(model, both)
    assert [way.zoneout for way in model.rnn.directions] == [0.2, 0.2]


def test_decay_spares_biases_gains_and_detectors() -> None:
    model = LanguageModel(9, ModelConfig(embedding_size=3, hidden_size=(6, 5, 4), output_size=5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    decay(model, 0.25)
    decayed = {"embedding.weight", "softmax.weight", "output.gates.weight"}
    decayed |= {f"output.embeddings.{l}.weight" for l in range(3)}
    detecting = {f"rnn.{kind}.{l}" for kind in "UVW" for l in range(2)}
    decayed |= detecting | {"rnn.U.2", "rnn.W.2"}
    for name, p in model.named_parameters():
        expected = before[name] * (0.75 if name in decayed else 1.0)
        if name in detecting:
            expected[-1] = before[name][-1]
        torch.testing.assert_close(p.detach(), expected, msg=lambda m, name=name: f"{name}: {m}")
    assert decayed < before.keys()


def test_decay_follows_the_rate_after_adam() -> None:
    plain, decayed = (tiny.trainer(tiny.config(weight_decay=share)) for share in (0.0, 0.5))
    for trainer in (plain, decayed):
        trainer.step()
    weight, expected = decayed.model.softmax.weight, plain.model.softmax.weight * (1 - 0.02 * 0.5)
    torch.testing.assert_close(weight, expected)
    for good, share in ((False, 0.0), (True, 0.01 * 0.5)):
        tiny.term(decayed, Decay).after_update(torch.tensor(good), 0.01)
        torch.testing.assert_close(weight, expected * (1 - share))


def test_average_is_its_recurrence() -> None:
    trainer = tiny.trainer(tiny.config(average=0.8))
    seen = []
    for _ in range(5):
        trainer.step()
        seen.append(trainer.model.softmax.weight.detach().double().numpy().copy())
    powers = 0.8 ** np.arange(4, -1, -1)
    expected = np.tensordot(powers / powers.sum(), np.stack(seen), 1)
    found = tiny.term(trainer, Average).weights["softmax.weight"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-7)
    once = tiny.trainer(tiny.config(average=0.999))
    once.step()
    weights = tiny.term(once, Average).weights
    assert all(torch.equal(weights[name], p) for name, p in once.model.named_parameters())


def test_validation_and_the_best_model_take_the_average(tmp_path: Path) -> None:
    trainer = tiny.trainer(tiny.config(average=0.9))
    for _ in range(6):
        trainer.step()
    raw = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    averaged = copy.deepcopy(trainer.model)
    averaged.load_state_dict({**raw, **tiny.term(trainer, Average).weights})
    places = [p.data_ptr() for p in trainer.model.parameters()]
    got = trainer.validate().measure
    assert got != trainer.task.validate().measure
    assert all(torch.equal(weight, raw[name]) for name, weight in trainer.model.state_dict().items())
    assert [p.data_ptr() for p in trainer.model.parameters()] == places  # where a captured update looks for them
    trainer.model.load_state_dict(averaged.state_dict())
    assert got == trainer.task.validate().measure

    tiny.run(tmp_path, tiny.config(average=0.9))
    best, last = (
        checkpoint.read(checkpoint.find(tmp_path, kind), training=kind == "last") for kind in ("best", "last")
    )
    assert last.training is not None
    assert torch.equal(best.weights["rnn.U.0"], last.training["average.weights.rnn.U.0"])
    assert not torch.equal(best.weights["rnn.U.0"], last.weights["rnn.U.0"])
    assert best.weights["rnn.a"] == last.weights["rnn.a"]
    bits = [line["bits"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["event"] == "valid"]
    text = tiny.corpus()
    assert hmrnn.load(tmp_path).score(text.vocabulary.decode(text.valid)).bits == pytest.approx(bits[-1], abs=0.02)


def test_resume_refuses_another_regularisation() -> None:
    changed = dataclasses.replace(tiny.config(), regularise=RegulariseConfig(weight_drop=0.1))
    with pytest.raises(InputError) as refused:
        commands._check_resumable(tiny.config(), changed)
    assert refused.value.setting == "regularise.weight_drop"
