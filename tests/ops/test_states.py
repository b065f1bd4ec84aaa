"""States: sequences that begin anew."""

from __future__ import annotations

import math

import torch

from hmrnn.ops import State


def made(batch: int = 3) -> State:
    h, c = (tuple(torch.randn(batch, size) for size in (4, 2)) for _ in "hc")
    return State(h, c, torch.ones(batch, 1))


def test_sequences_that_are_not_kept_begin_at_zero() -> None:
    """Whatever was in them: not a number times zero would stay what it is."""
    state = made()
    state.c[1][1] = math.nan
    state = State(tuple(h.bfloat16() for h in state.h), state.c, state.z)
    kept = state.keep([True, False, True]).named()
    for name, before in state.named().items():
        assert kept[name].dtype == before.dtype
        assert kept[name][1].abs().sum() == 0
        assert torch.equal(kept[name][[0, 2]], before[[0, 2]])


def test_a_network_without_detectors() -> None:
    state = made()._replace(z=torch.zeros(3, 0))
    assert state.keep([True, False, True]).z.shape == (3, 0)
