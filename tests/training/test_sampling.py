"""Scheduled sampling and clipping by value: what they change in an update, their schedules, and exact resumption."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hmrnn
import tiny
import tiny_strokes
from hmrnn.kinds.strokes.mixture import Halting, StrokeMixture
from hmrnn.nn.distributions import Categorical
from hmrnn.training.task import with_own_inputs
from hmrnn.training.trainer import Trainer
from refusals import refused


def stroke_trainer(**changes: Any) -> Trainer:
    return tiny.trainer(tiny_strokes.config(**changes), tiny_strokes.corpus())  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [tiny.trainer, lambda config: stroke_trainer()])
def test_a_share_of_the_inputs_is_the_model_s_own(make: Any) -> None:
    trainer = make(tiny.config(batch_size=32, length=6), tiny.corpus(220)) if make is tiny.trainer else make(None)
    model, inputs = trainer.model, trainer.task.batch(0, 0)[0]
    none, some, every = (with_own_inputs(model, inputs, torch.tensor(p), None) for p in (0.0, 0.5, 1.0))
    assert torch.equal(none, inputs)
    assert all(torch.equal(mixed[0], inputs[0]) for mixed in (some, every))
    own = (some != inputs).flatten(2).any(-1) if inputs.dim() == 3 else some != inputs
    assert 0.2 < own[1:].float().mean() < 0.7  # a draw of a symbol may be the true one
    assert every.dtype == inputs.dtype
    assert every.shape == inputs.shape
    assert model.training


def test_draws_follow_the_predictions() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]).expand(20_000, 1, 3)
    shares = Categorical(logits).draw().flatten().bincount() / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.0, 1.0, 2.0]).softmax(0), atol=0.02, rtol=0)
    vector = torch.tensor([0.0, 1.0, 1.0, -2.0, 0.5, 1.0, -0.5, 0.3, 0.1, -0.2, 0.4, -0.6, 0.7]).expand(20_000, 1, 13)
    mixture = StrokeMixture.from_vector(vector)
    torch.manual_seed(0)
    got = Halting(mixture, mixture.pen).draw()[:, 0].double()
    want = mixture.sample(torch.Generator().manual_seed(0))[:, 0]
    assert got.shape == want.shape
    torch.testing.assert_close(got.mean(0), want.mean(0), atol=0.05, rtol=0)
    torch.testing.assert_close(torch.cov(got.T), torch.cov(want.T), atol=0.15, rtol=0.05)


def test_the_share_follows_its_schedule_and_reaches_the_loss() -> None:
    trainer = tiny.trainer(tiny.config(epochs=3, scheduled_sampling=(0.0, 1.0)))
    plain = tiny.trainer(tiny.config(epochs=3))
    seen = []
    for epoch in range(3):
        for chunk in range(trainer.task.chunks):
            if chunk == 0:
                assert trainer.progress.epoch == epoch
            trainer.step()
        seen.append(float(trainer.task.own_share))
    assert seen == [0.0, 0.5, 1.0]
    assert plain.task.own_share is None
    batch = trainer.task.batch(0, 0)
    plain.model.load_state_dict(trainer.model.state_dict())
    mixed, true = (task.loss(task.model, batch, None).value for task in (trainer.task, plain.task))
    assert mixed != true


def test_the_gradient_is_clipped_by_value_then_by_norm() -> None:
    free, clipped, both = (
        tiny.trainer(tiny.config(clip_norm=norm, clip_value=value)) for norm, value in ((0, 0), (0, 0.01), (0.02, 0.01))
    )
    for trainer in (free, clipped, both):
        trainer.step()
    wanted = {name: p.grad.clamp(-0.01, 0.01) for name, p in free.model.named_parameters() if p.grad is not None}
    assert any(p.grad.abs().max() > 0.01 for p in free.model.parameters() if p.grad is not None)
    norm = torch.cat([g.flatten() for g in wanted.values()]).norm()
    assert norm > 0.02
    for name, gradient in wanted.items():
        torch.testing.assert_close(clipped.model.get_parameter(name).grad, gradient)
        torch.testing.assert_close(both.model.get_parameter(name).grad, gradient * (0.02 / norm), rtol=1e-4, atol=1e-8)


def test_what_is_refused() -> None:
    with refused("train.scheduled_sampling"):
        tiny.config(scheduled_sampling=(0.0, 2.0)).check()
    labelled = tiny.changed(hmrnn.kind.presets()["labels"], scheduled_sampling=(0.0, 1.0))
    with refused("train.scheduled_sampling"):
        labelled.check()
    with refused("train.clip_value"):
        tiny.config(clip_value=-1).check()
