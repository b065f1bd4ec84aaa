"""What terms need of a task, and tasks offer; the list that a config makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny
from hmrnn.kinds.labels.task import LabelledTask
from hmrnn.kinds.strokes.task import StrokeTask
from hmrnn.kinds.text.task import TextTask
from hmrnn.training.terms import make_terms, needs_of
from refusals import refused

PULLED: dict[str, Any] = {"rates": (0.4, 0.1), "pull_weight": 0.1}


@pytest.mark.parametrize(
    ("how", "needed"),
    [
        ({}, set()),
        ({"rates": (0.4, 0.1)}, set()),
        ({"rates": (0.4, 0.1), "rate_control": 0.1}, {"chances"}),
        (PULLED, {"surprise"}),
        ({**PULLED, "pull_to": "uncertainty"}, {"surprise", "entropy"}),
        ({**PULLED, "pull_to": "entropy", "pull_margin": 1.0}, {"surprise", "entropy", "chances"}),
        ({"estimator": "reinforce"}, {"surprise", "chances", "hidden"}),
    ],
)
def test_a_task_hands_over_what_terms_need(how: dict[str, Any], needed: set[str]) -> None:
    trainer = tiny.trainer(tiny.config(**how))
    assert trainer.task.needs == needed
    loss = trainer.task.loss(trainer.model, trainer.task.batch(0, 0), trainer.state)
    assert {name for name in TextTask.offers if getattr(loss, name) is not None} == needed


@pytest.mark.parametrize(
    ("task", "how", "setting"),
    [
        (StrokeTask, {"pull_to": "uncertainty"}, "detectors.pull_to uncertainty"),
        (StrokeTask, {"pull_to": "entropy"}, "detectors.pull_to entropy"),
        (LabelledTask, {}, "detectors.pull_"),
        (LabelledTask, {"pull_weight": 0.0, "estimator": "reinforce"}, "detectors.estimator reinforce"),
    ],
    ids=str,
)
def test_what_a_task_does_not_offer_is_refused(task: Any, how: dict[str, Any], setting: str) -> None:
    with refused():
        needs_of(make_terms(tiny.config(**(PULLED | how))), task.offers)


def test_all_that_a_term_keeps_stays_in_its_memory() -> None:
    """Captured updates find it there, and a checkpoint is copied into it."""
    config = tiny.config(**PULLED, rate_control=0.1, estimator="reinforce", average=0.9, weight_decay=0.1)
    trainer, other = tiny.trainer(config), tiny.trainer(config)
    kept = [tensor for term in trainer.terms for tensor in term.tensors().values()]
    for _ in range(3):
        trainer.step()
    now = [tensor for term in trainer.terms for tensor in term.tensors().values()]
    assert len(kept) > 2
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(kept, now, strict=True))
    places = [tensor for term in other.terms for tensor in term.tensors().values()]
    other.restore(trainer.snapshot(training=True))
    assert all(torch.equal(a, b) for a, b in zip(places, now, strict=True))
