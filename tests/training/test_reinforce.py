"""Runs whose detectors are trained by "gumbel" or "reinforce": temperature, baseline, terms, pulls."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
import tiny_strokes
from hmrnn.config import DetectorConfig
from hmrnn.ops import State
from hmrnn.training.task import Loss
from hmrnn.training.terms import make_terms
from hmrnn.training.terms.reinforce import Reinforce
from hmrnn.training.trainer import Trainer

SETTINGS = DetectorConfig(estimator="reinforce", discount=0.8, entropy=0.1)


def made_up_loss(T: int = 6, B: int = 4, **changes: Any) -> Loss:
    torch.manual_seed(0)
    state = State((torch.zeros(B, 3),), (torch.zeros(B, 3),), torch.zeros(B, 2))
    p = torch.rand(T, B, 2).requires_grad_()
    given: dict[str, Any] = {"surprise": torch.rand(T, B) + 1, "chances": p, "hidden": torch.randn(T, B, 3)}
    z = (torch.rand(T, B, 2) < 0.5).float()
    return Loss(torch.tensor(1.0), z, state, **given | {"divisor": T * B} | changes)


def started(units: int = 3) -> Reinforce:
    term = Reinforce(dataclasses.replace(tiny.DEFAULT, detectors=SETTINGS))
    rnn = SimpleNamespace(hidden_sizes=(units,))
    term.start(SimpleNamespace(model=SimpleNamespace(rnn=rnn), device="cpu", mean=lambda part: part))  # type: ignore[arg-type]
    return term


def gradient(loss: Loss, term: Reinforce) -> Tensor:
    assert loss.chances is not None
    return torch.autograd.grad(term.loss(loss), loss.chances)[0]


def test_the_baseline_learns_to_predict_the_mean_of_later_losses() -> None:
    term, good = started(), torch.tensor(True)
    h = torch.randn(200, 8, 3)
    losses = torch.full((200, 8), 1.5)
    losses[1:] += 0.5 * h[:-1, :, 0]  # of which the mean over later steps knows something, too
    loss = made_up_loss(200, 8, hidden=h, surprise=losses)
    for _ in range(200):
        term.loss(loss)
        term.after_update(good, 0.1)
    assert term.weights[-1].item() == pytest.approx(1.5, abs=0.05)
    assert term.weights[0].item() == pytest.approx(0.5 * 0.8 / 5, abs=0.05)  # the next step's share of five
    assert abs(term.weights[1].item()) < 0.05
    learned = term.weights.clone()
    term.loss(loss._replace(surprise=losses * torch.nan))
    term.after_update(~good, 0.1)  # a skipped update
    assert torch.equal(term.weights, learned)
    term.after_update(good, 0.1)
    assert torch.equal(term.weights, learned)  # nothing of it is left


def test_padding_adds_nothing() -> None:
    term = started()
    term.weights.copy_(torch.tensor([0.3, -0.2, 0.1, 1.0]))
    loss = made_up_loss()
    active = torch.ones(6, 4, dtype=torch.bool)
    active[4:, 1:] = False
    assert loss.surprise is not None
    padded = loss._replace(active=active, surprise=loss.surprise * active)
    got = gradient(padded, term)
    assert not got[4:, 1:].any()
    cut = {name: getattr(padded, name)[:4, 1:] for name in ("boundaries", "surprise", "chances", "hidden")}
    cut["chances"] = cut["chances"].detach().requires_grad_()
    torch.testing.assert_close(got[:4, 1:], gradient(loss._replace(**cut), term))


@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
def test_an_update_gives_detectors_the_gradient_of_their_terms(on_copy: str) -> None:
    """Without the terms of REINFORCE they have none: z does not pass any on."""
    trainer = tiny.trainer(tiny.config(estimator="reinforce", on_copy=on_copy, discount=1.0))
    loss = trainer.task.loss(trainer.model, trainer.task.batch(0, 0), trainer.state)
    assert loss.surprise is not None
    assert loss.surprise.sum().item() / loss.divisor == pytest.approx(loss.value.item(), rel=1e-5)
    biases = trainer.model.rnn.detector_biases()
    terms = tiny.term(trainer, Reinforce).loss(loss)
    plain = torch.autograd.grad(loss.value, biases, retain_graph=True)
    scored = torch.autograd.grad(terms, biases, retain_graph=True)
    pulled = torch.autograd.grad(loss.rates().sum(), biases)
    assert [g[-1].item() for g in plain] == [0, 0]
    assert all(g[-1].item() != 0 for g in (*scored, *pulled))


def test_h_before_a_step_is_that_of_the_step_before() -> None:
    trainer = tiny.trainer(tiny.config(estimator="reinforce"))
    trainer.step()
    assert trainer.state is not None
    torch.manual_seed(5)
    loss = trainer.task.loss(trainer.model, trainer.task.batch(0, 1), trainer.state)
    torch.manual_seed(5)
    _, out, _ = trainer.model(trainer.task.batch(0, 1)[0], trainer.state)
    assert loss.hidden is not None
    assert torch.equal(loss.hidden[0], torch.cat(trainer.state.h, dim=1))
    assert torch.equal(loss.hidden[1:], torch.cat(out.hidden, dim=2)[:-1].detach())


def test_the_temperature_follows_the_epochs() -> None:
    trainer = tiny.trainer(tiny.config(estimator="gumbel", temperature=(2.0, 0.5), epochs=4))
    seen = []
    for _ in range(3 * trainer.task.chunks + 1):
        trainer.step()
        seen.append(trainer.model.rnn.temperature)
    assert [round(seen[k * trainer.task.chunks], 6) for k in range(4)] == [2.0, 1.5, 1.0, 0.5]


@pytest.mark.parametrize("estimator", ["gumbel", "reinforce"])
def test_handwriting(estimator: str) -> None:
    config = tiny_strokes.config(estimator=estimator, entropy=0.01)
    trainer = Trainer(config, tiny_strokes.corpus(), torch.device("cpu"))
    before = [b.clone() for b in trainer.model.rnn.detector_biases()]
    for _ in range(trainer.task.chunks):
        trainer.step()
    assert all(b[-1] != old[-1] for b, old in zip(trainer.model.rnn.detector_biases(), before))
    assert trainer.window_means() is not None
    assert any(isinstance(term, Reinforce) for term in trainer.terms) == (estimator == "reinforce")


def test_networks_without_detectors_have_no_baseline() -> None:
    for how in ({"num_layers": 1, "hidden_size": (4,)}, {"rnn": "gru"}):
        assert not make_terms(tiny.config(estimator="reinforce", **how))
