"""Streams of one sequence: steps after the first leave out checks, and are those of the forward pass all the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from hmrnn import HMLSTM, InputError, State
from hmrnn.ops.single import plan as single_plan
from hmrnn.ops.single import step as single_step
from pairs import grid

OPTIONS = [
    {"flush": flush, "top_down": top_down, "layer_norm": norm, "on_copy": on_copy, "detector_hidden": hidden}
    for flush, top_down, norm, on_copy, hidden in grid(
        (True, False), ("boundary", "pending", "always", "none"), (False, True), ("evaluate", "hold"), (0, 3)
    )
]


@pytest.fixture
def went_on(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of ``go_on``, whether it took the step."""
    found: list[bool] = []
    go_on = single_step.go_on

    def noted(*given: Any) -> Any:
        result = go_on(*given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(single_step, "go_on", noted)
    return found


def network(**options: Any) -> HMLSTM:
    torch.manual_seed(3)
    return HMLSTM(4, (6, 5, 7), 3, **options).double().requires_grad_(False)


def stream(rnn: HMLSTM, x: Tensor, forced: Tensor | None = None) -> list[tuple[Tensor, ...]]:
    """For each step h of all layers, z and z̃."""
    state, found = None, []
    for t in range(len(x)):
        state, _, probabilities = rnn.step(x[t], state, None if forced is None else forced[t])
        found.append((*state.h, state.z, probabilities))
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("mode", ["plain", "inference"])
def test_steps_are_the_forward_pass(
    options: dict[str, Any], mode: str, went_on: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_plan, "SETTLED", 15)
    rnn, x = network(**options), torch.randn(30, 1, 4, dtype=torch.float64)
    forced = torch.tensor([0, 1, torch.nan], dtype=torch.float64)[torch.randint(3, (30, 1, 2))]
    rnn.engine = "reference"
    out, _ = rnn(x, boundaries=forced)
    with torch.inference_mode(mode == "inference"):
        found = stream(rnn, x, forced)
    for t, (*h, z, probabilities) in enumerate(found):
        for one, other in zip((*h, z, probabilities), (*out.hidden, out.boundaries, out.probabilities)):
            torch.testing.assert_close(one, other[t], rtol=0, atol=1e-10)
    assert went_on == [True] * 29


def test_a_changed_setting_counts_at_once(went_on: list[bool]) -> None:
    rnn, x = network(), torch.randn(1, 4, dtype=torch.float64)
    state = rnn.step(x).state
    rnn.slope = 3.0
    torch.testing.assert_close(rnn.step(x, state).probabilities, rnn.step(x, State(*state)).probabilities)
    state = rnn.step(x, state).state
    rnn.zoneout = 0.5
    torch.testing.assert_close(rnn.step(x, state).state.h, rnn.step(x, State(*state)).state.h)
    assert went_on == [False] * 3


@pytest.mark.parametrize("batch", [1, 2])
def test_changes_of_a_network_made_in_inference_mode_count(batch: int) -> None:
    """No version counts them."""
    x = torch.randn(batch, 4, dtype=torch.float64)
    copies = torch.tensor([[0, torch.nan]], dtype=torch.float64).repeat(batch, 1)  # the second layer copies
    with torch.inference_mode():
        rnn = network()
    state = rnn.step(x, None, torch.zeros_like(copies)).state
    with torch.inference_mode():
        rnn.slope = 1.5
        for parameter in rnn.parameters():
            parameter.add_(0.1)
    found, fresh = (rnn.step(x, of, copies).probabilities for of in (state, State(*state)))
    assert 0 < fresh[0, 1] < 1
    torch.testing.assert_close(found, fresh, rtol=0, atol=1e-12)


def test_bad_input_is_named_in_the_middle_of_a_stream() -> None:
    rnn, x = network(), torch.randn(1, 4, dtype=torch.float64)
    state = rnn.step(x).state
    for wrong, says in (
        (x[:, :3], "x must have shape"),
        (x.float(), "x is torch.float32"),
        (x * torch.nan, "x must be finite"),
        (x * 1e40, "x must be finite"),
    ):
        with pytest.raises(InputError, match=says):
            rnn.step(wrong, state)
    with pytest.raises(InputError, match="boundaries must have shape"):
        rnn.step(x, state, torch.zeros(1, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="boundaries must lie between 0 and 1"):
        rnn.step(x, state, torch.full((1, 2), 1.5, dtype=torch.float64))
    with pytest.raises(InputError, match="boundaries must be None or a tensor; got list"):
        rnn.step(x, state, [[0.0, 1.0]])  # type: ignore[arg-type]


def test_a_state_can_be_gone_on_from_twice() -> None:
    rnn, x = network(), torch.randn(3, 1, 4, dtype=torch.float64)
    state = rnn.step(x[0]).state
    kept = [a.clone() for a in (*state.h, *state.c)]
    first = rnn.step(x[1], state).state
    rnn.step(x[2], first)
    assert all(map(torch.equal, (*state.h, *state.c), kept))
    torch.testing.assert_close(rnn.step(x[1], state).state.h, first.h, rtol=0, atol=0)


def test_threads_share_a_state() -> None:
    rnn, x = network(), torch.randn(40, 1, 4, dtype=torch.float64)
    start = rnn.step(x[0]).state
    results: list[list[Tensor]] = [[] for _ in range(4)]

    def run(seen: list[Tensor]) -> None:
        state: State = start
        for t in range(1, 40):
            state = rnn.step(x[t], state).state
            seen.append(state.h[2])

    threads = [threading.Thread(target=run, args=(seen,)) for seen in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(expected := [])
    for seen in results:
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)


def test_under_autocast_products_are_in_the_lower_precision(went_on: list[bool]) -> None:
    rnn, x = network(flush=False).float(), torch.randn(12, 1, 4)
    forced = torch.randint(2, (12, 1, 2)).float()
    with torch.autocast("cpu", torch.bfloat16):
        one = stream(rnn, x, forced)
        two = stream(rnn, x.repeat(1, 2, 1), forced.repeat(1, 2, 1))
    for a, b in zip(one, two):
        assert a[0].dtype == torch.float32
        torch.testing.assert_close(a, tuple(tensor[:1] for tensor in b), rtol=0, atol=0.02)
    exact = stream(rnn, x, forced)
    assert not torch.equal(exact[-1][2], one[-1][2])
    assert went_on.count(True) == 22
