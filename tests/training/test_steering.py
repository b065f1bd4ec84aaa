"""Detectors that are told how often to fire, and where: start rates, rate control, the pull of surprise."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tiny
from hmrnn.config import ModelConfig
from hmrnn.kinds.text.network import LanguageModel
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.output import Operation
from hmrnn.nn.rates import BELOW_ZERO, distance
from hmrnn.ops.estimators import Boundary, decide, hard_sigmoid
from hmrnn.training.task import Loss, chances
from hmrnn.training.terms.steering import bound_feedback, control_rates, first_rates, lacking_bias, surprise_pull
from hmrnn.training.terms.weights import decay


@pytest.mark.parametrize(
    "how", [{}, {"layer_norm": True, "recurrent_gain": 0.1}, {"estimator": "soft"}, {"accumulate": 2}]
)
def test_detectors_start_at_the_rates_that_are_asked_for(how: dict[str, Any]) -> None:
    """Their biases are all that is changed, once, before the first update.

    With gains of more than 0.1 the second detector, which is set last, moves the first by a few hundredths.
    """
    text = tiny.corpus(train=4000)
    trainer, plain = (
        tiny.trainer(
            tiny.config(batch_size=40, length=20, rates=rates, start_at_rates=bool(rates), rate_weight=0.0, **how), text
        )
        for rates in ((0.7, 0.3), ())
    )
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    with mock.patch.object(trainer, "update"):
        trainer.step()
        found = [b[-1].item() for b in trainer.model.rnn.b[:2]]
        trainer.step()  # looks no more
    assert [b[-1].item() for b in trainer.model.rnn.b[:2]] == found
    after = trainer.model.state_dict()
    assert {name for name in after if not torch.equal(after[name], before[name])} == {"rnn.b.0", "rnn.b.1"}
    assert all(torch.equal(after[name][:-1], before[name][:-1]) for name in ("rnn.b.0", "rnn.b.1"))
    assert first_rates(trainer).tolist() == pytest.approx([0.7, 0.3], abs=0.02)
    assert first_rates(plain).tolist() != pytest.approx([0.7, 0.3], abs=0.1)


def test_with_layer_norm_no_upper_detector_fires_while_its_layer_is_all_zeros() -> None:
    """There the gradient would be multiplied by 316 at every step until something comes from below."""
    text = tiny.corpus(train=4000)
    config = tiny.config(
        batch_size=40, length=20, rates=(0.3, 0.95), start_at_rates=True, rate_weight=0.0, layer_norm=True
    )
    trainer = tiny.trainer(config, text)
    with mock.patch.object(trainer, "update"):
        trainer.step()
    biases = [b[-1].item() for b in trainer.model.rnn.b[:2]]
    assert biases[1] == pytest.approx(BELOW_ZERO, abs=0.01)
    assert biases[1] < 0
    low, high = first_rates(trainer).tolist()
    assert low == pytest.approx(0.3, abs=0.02)
    assert high < 0.9


def test_control_moves_the_detectors_biases_and_nothing_else() -> None:
    model = LanguageModel(5, ModelConfig(embedding_size=3, hidden_size=(4,), output_size=3))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    control_rates(model.rnn, torch.tensor([math.nan, -0.1]), 0.5, torch.tensor(False))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    control_rates(model.rnn, torch.tensor([0.3, -0.1]), 0.5, torch.tensor(True))
    for name, p in model.named_parameters():
        expected = before[name].clone()
        if name in ("rnn.b.0", "rnn.b.1"):
            expected[-1] += {"rnn.b.0": 0.15, "rnn.b.1": -0.05}[name]
        assert torch.allclose(p, expected), name


@pytest.mark.parametrize("boundary", ["step", "sample", "soft"])
@pytest.mark.parametrize("padded", [False, True])
def test_what_a_bias_lacks_gives_the_target_on_the_same_batch(boundary: Boundary, padded: bool) -> None:
    """However far apart or close together the pre-activations lie, as long as they stay in the linear range."""
    rnn = HMLSTM(1, 2, boundary=boundary)
    rnn.slope = 2.0
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(50, 40, 2, generator=generator).clamp(-3, 3)
    before = numbers * torch.tensor([0.05, 0.001]) + torch.tensor([0.2, -0.1])  # (T, B, detectors)
    active = torch.arange(50)[:, None] < torch.arange(11, 51) if padded else None
    reading = Loss(before.sum(), before, rnn.initial_state(40), active, chances=hard_sigmoid(before, 2.0))
    after = before + lacking_bias(reading, (0.3, 0.05), rnn)
    fires = (after > 0).float() if boundary == "step" else hard_sigmoid(after, 2.0)
    rates = fires.mean((0, 1)) if active is None else fires[active].mean(0)
    assert rates.tolist() == pytest.approx([0.3, 0.05], abs=0.001)


def test_a_bias_that_cannot_be_seen_from_the_linear_range_lacks_the_way_to_its_end() -> None:
    rnn = HMLSTM(1, 2)
    far = torch.stack([torch.full((5, 4), -9.0), torch.full((5, 4), 9.0)], dim=-1)
    reading = Loss(far.sum(), far, rnn.initial_state(4), chances=hard_sigmoid(far, 1.0))
    assert lacking_bias(reading, (0.3, 0.3), rnn).tolist() == [1.0, -1.0]
    assert lacking_bias(reading, (0.0, 1.0), rnn).tolist() == [1.0, -1.0]  # no index beyond the last


def test_the_pull_of_surprise_by_hand() -> None:
    """Two sequences of five steps, the second one padded after three; surprise is of the symbol after each step."""
    surprise = torch.tensor([[1.0, 2.0], [5.0, 2.0], [1.0, 8.0], [2.0, 9.0], [9.0, 0.0]])
    active = torch.tensor([[1, 1], [1, 1], [1, 1], [1, 0], [1, 0]]).bool()
    z = torch.zeros(5, 2, 2, requires_grad=True)
    p = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])[:, None, None].expand(5, 2, 2)
    rnn = HMLSTM(1, 2)
    rises = {0: [(4, 0), (2, 1), (1, 0)], 1: [(2, 0), (4, 0)]}  # the steepest; with a lag the rest lies beyond the end
    for lag, steepest in rises.items():
        wanted = torch.zeros(5, 2, 2)
        for t, b in steepest:
            wanted[t, b, 0] = 1  # 3 of 8 steps
        if lag == 0:
            wanted[4, 0, 1] = 1  # 1 of 8
        else:
            wanted[2, 0, 1] = 1
        reading = Loss(z.sum(), z, rnn.initial_state(2), active, surprise, chances=p)
        beyond = p - (0.1 + 0.8 * wanted)
        for margin in (0.0, 0.5):
            pull = surprise_pull(reading, (0.375, 0.125), lag, margin=margin)
            errors = (wanted**2 + margin * beyond**2) * active[..., None]
            assert pull.item() == pytest.approx(errors.sum().item() / 8)
            (gradient,) = torch.autograd.grad(pull, z)
            torch.testing.assert_close(gradient, 2 * (margin * beyond - wanted) * active[..., None] / 8)
    whole = surprise_pull(Loss(z.sum(), z, rnn.initial_state(2), None, surprise), (1.0, 0.0), 0)
    assert whole.item() == pytest.approx(5 / 10)  # every step that is a rise, and none
    expected = torch.tensor([[1.0, 1.0], [3.0, 1.0], [4.0, 1.0], [2.0, 9.0], [1.5, 9.0]])
    reading = Loss(z.sum(), z, rnn.initial_state(2), active, surprise, expected)
    (gradient,) = torch.autograd.grad(surprise_pull(reading, (0.375, 0.125), 0, "uncertainty"), z)
    assert {tuple(place) for place in gradient.nonzero().tolist()} == {(1, 0, 0), (2, 0, 0), (4, 0, 0), (1, 0, 1)}
    expected[3, 0] = 2.5  # now expected[t] - (expected[t-1] + surprise[t-1]) / 3 is 1/3, 7/3, 4/3, 5/6, 0; 1/3, 0, 0
    (gradient,) = torch.autograd.grad(surprise_pull(reading, (0.375, 0.125), 0, "entropy"), z)
    assert {tuple(place) for place in gradient.nonzero().tolist()} == {(1, 0, 0), (2, 0, 0), (3, 0, 0), (1, 0, 1)}


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_a_margin_pulls_on_beyond_the_threshold(margin: float) -> None:
    """A boundary that a rounding could take away is none to rely on."""
    s = torch.tensor([0.01, -0.01, 0.01, -0.01, 0.01]).view(5, 1, 1).requires_grad_()
    surprise = torch.tensor([9.0, 1.0, 9.0, 1.0, 9.0])[:, None]  # so the right places are found already
    state = HMLSTM(1, 2).initial_state(1)
    for _ in range(200):
        z, p = decide(hard_sigmoid(s, 1.0), "step"), hard_sigmoid(s.detach(), 1.0)
        reading = Loss(z.sum(), z, state, None, surprise, surprise, p)
        (gradient,) = torch.autograd.grad(surprise_pull(reading, (0.6,), 0, "uncertainty", margin), s)
        s = (s - gradient).detach().requires_grad_()
    assert s.flatten().sign().tolist() == [1, -1, 1, -1, 1]
    torch.testing.assert_close(s.abs(), torch.full_like(s, 0.8 if margin > 0 else 0.01), rtol=0, atol=1e-3)


@pytest.mark.parametrize("boundary", ["step", "sample"])
@pytest.mark.parametrize("kind", ["rise", "uncertainty", "entropy"])
def test_what_an_update_does_for_detectors_asks_for_no_number(boundary: Boundary, kind: str) -> None:
    """Else a GPU would have to be waited for, and no update could be captured. Tensors without numbers tell."""
    rnn = HMLSTM(1, 2, boundary=boundary)
    with FakeTensorMode(allow_non_fake_inputs=True):
        z, other, good = torch.rand(5, 4, 2), torch.rand(5, 4), torch.ones((), dtype=torch.bool)
        reading = Loss(z.sum(), z, rnn.initial_state(4), other > 0.5, other, other, z)
        surprise_pull(reading, (0.3, 0.1), 1, kind, 0.5)
        0.5 * distance(reading.rates(), (0.3, 0.1))
        control_rates(rnn, lacking_bias(reading, (0.3, 0.1), rnn), torch.tensor(0.05), good)
        bound_feedback(rnn, 0.3, 0.5, good)
        decay(rnn, good * 0.1)


def test_control_falls_as_the_learning_rate_does() -> None:
    """Here over the last half of the updates."""
    config = tiny.config(rates=(0.3, 0.2), rate_control=0.05, cool_down=0.5, epochs=1)
    trainer = tiny.trainer(config)
    updates = trainer.task.chunks
    with mock.patch("hmrnn.training.terms.steering.control_rates") as control:
        for _ in range(updates):
            trainer.step()
    strengths = [call.args[2] for call in control.call_args_list]
    expected = [0.05 * min(1.0, 2 * (updates - k) / updates) for k in range(updates)]
    assert strengths == pytest.approx(expected)
    assert strengths[-1] < 0.05


def test_chances_of_a_detector_that_holds_its_peace() -> None:
    """Where its layer copies it cannot fire."""
    torch.manual_seed(0)
    for on_copy in ("evaluate", "hold"):
        rnn = HMLSTM(3, 4, on_copy=on_copy)
        out, _ = rnn(torch.randn(9, 5, 3))
        given = chances(out, rnn)
        copies = out.operations[..., :2] == Operation.COPY
        assert torch.equal(given[~copies], out.probabilities[~copies])
        assert copies.any()
        assert bool((given[copies] == 0).all()) == (on_copy == "hold")
