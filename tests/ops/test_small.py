"""The engine for small layers: outputs, final state and every gradient of the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from against_reference import Case, evaluate, expected, make, worst
from hmrnn import HMLSTM, InputError
from hmrnn.ops import Options, State, reference
from hmrnn.ops.interface import TOP_DOWN, TopDown
from hmrnn.ops.small import forward as small
from hmrnn.ops.small import track as small_track
from hmrnn.ops.sparse import forward as sparse
from pairs import grid

MORE = [
    {},
    {"on_copy": "hold", "forced": "some", "lengths": True, "straight_through": True},
    {"boundary": "sample", "on_copy": "hold", "symbols": 5},
    {"boundary": "sample", "lengths": True, "forced": "some"},
    {"lengths": True, "symbols": 5, "sizes": (4, 3, 5, 2)},
    {"lengths": True, "on_copy": "hold"},
    {"forced": "all"},
    {"layer_norm": True},
    {"layer_norm": True, "on_copy": "hold", "forced": "some", "lengths": True, "straight_through": True},
    {"layer_norm": True, "boundary": "sample", "symbols": 5, "sizes": (4, 3, 5, 2)},
    {"layer_norm": True, "lengths": True, "forced": "some", "sizes": (4,)},
    {"forced": "all", "straight_through": True, "sizes": (3, 4)},
    {"sizes": (4,), "lengths": True},
]


OFTEN = (True, "boundary", True, {"T": 20, "on_copy": "hold", "sizes": (4, 3, 5, 2)})
"""Long enough for a layer that is flushed, but not fed, to end a segment."""


@pytest.mark.parametrize(
    ("flush", "top_down", "copy", "more"), [*grid((False, True), TOP_DOWN, (True, False), MORE), OFTEN]
)
def test_outputs_and_gradients_are_those_of_the_reference(
    flush: bool, top_down: TopDown, copy: bool, more: dict[str, Any]
) -> None:
    case = Case(**({"T": 8, "B": 4} | more), flush=flush, top_down=top_down, copy=copy)
    given = make(case, torch.float64)
    error, name = worst(evaluate(small.hmlstm, given, torch.float64), expected(given))
    assert error < 1e-10, f"{name}: {error}"


def test_the_caller_may_reuse_noise_and_forced_boundaries_before_the_backward_pass() -> None:
    given = make(Case(T=8, B=4, boundary="sample", on_copy="hold", forced="some"), torch.float64)
    options, found = Options(1.7, "sample", "hold"), []
    for reused in (False, True):
        weights = [type(w)(*(None if a is None else a.clone().requires_grad_() for a in w)) for w in given.weights]
        noise, forced = given.noise.clone(), given.forced.clone()
        result = small.hmlstm(given.source, weights, given.state, options, noise=noise, boundaries=forced)
        if reused:
            noise.copy_(1 - noise)
            forced.fill_(torch.nan)
        sum(h.pow(2).sum() for h in result.hidden).backward()
        found.append([a.grad for w in weights for a in w if a is not None])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_large_matrices_are_multiplied_by_torch(layer_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_track, "LARGE", 0)
    given = make(Case(T=8, B=4, layer_norm=layer_norm), torch.float64)
    error, name = worst(evaluate(small.hmlstm, given, torch.float64), expected(given))
    assert error < 1e-10, f"{name}: {error}"


def test_the_slope_has_a_gradient() -> None:
    given, found = make(Case(T=8, B=4), torch.float64), []
    for engine in (small, reference):
        slope = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
        weights = [type(w)(*(None if a is None else a.clone().requires_grad_() for a in w)) for w in given.weights]
        result = engine.hmlstm(given.source, weights, given.state, Options(slope))
        (sum(h.pow(2).sum() for h in result.hidden) + result.probabilities.sum()).backward()
        found.append(slope.grad)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_what_it_cannot_do_is_said() -> None:
    weights = make(Case()).weights
    assert small.why_not(weights, Options()) is None
    assert "hidden layer" in str(small.why_not(make(Case(hidden=3)).weights, Options(detector_hidden=3)))
    assert "zoneout" in str(small.why_not(weights, Options(zoneout=0.1)))
    assert "gumbel" not in str(small.why_not(weights, Options(boundary="gumbel")))
    half = [type(w)(*(None if a is None else a.half() for a in w)) for w in weights]
    assert "float32" in str(small.why_not(half, Options()))
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in str(small.why_not(weights, Options()))


def test_a_state_of_another_dtype_is_named() -> None:
    given = make(Case(), torch.float64)
    with pytest.raises(InputError, match=r"state must be torch\.float64"):
        small.hmlstm(given.source, given.weights, given.state.apply(torch.Tensor.float), Options())


def test_it_runs_small_layers_that_learn_or_read_several_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    for name, engine in (("small", small), ("sparse", sparse)):
        run = engine.hmlstm
        monkeypatch.setattr(engine, "hmlstm", lambda *a, name=name, run=run, **b: ran.append(name) or run(*a, **b))
    x = torch.randn(5, 2, 3)
    rnn = HMLSTM(3, 4, 3)
    rnn(x)
    with torch.no_grad():
        rnn(x)
        rnn(x[:, :1])  # by neither of the two
    HMLSTM(3, 4, 3, engine="sparse")(x)
    HMLSTM(3, 4, 3, detector_hidden=2)(x)
    HMLSTM(3, small.SMALL + 1, 2)(x)
    HMLSTM(3, small.SMALL, 2, layer_norm=True)(x)
    HMLSTM(3, 4, 2, dtype=torch.bfloat16)(x.bfloat16())
    assert ran == ["small", "small", "sparse", "sparse", "sparse", "small", "sparse"]
    ran.clear()
    for norm, most in ((False, small.AT_ONCE), (True, small.AT_ONCE_NORMALISED)):
        for batch in (most // 64, most // 64 + 1):
            HMLSTM(3, (64, 2), 2, layer_norm=norm)(torch.randn(1, batch, 3))
    assert ran == ["small", "sparse"] * 2


def test_second_derivatives_are_refused() -> None:
    x = torch.randn(5, 2, 3, requires_grad=True)
    out, _ = HMLSTM(3, 4, 3)(x)
    with pytest.raises(InputError, match='for create_graph=True use engine="reference"'):
        torch.autograd.grad(out.hidden[2].sum(), x, create_graph=True)


def test_a_pass_can_be_cut() -> None:
    """The gradient goes on through the state."""
    given = make(Case(T=10, B=3, flush=False, top_down="pending"), torch.float64)
    options = Options(1.7, flush=False, top_down="pending")
    found = []
    for cut in (10, 4):
        weights = [type(w)(*(None if a is None else a.clone().requires_grad_() for a in w)) for w in given.weights]
        state: State = given.state
        loss = torch.zeros((), dtype=torch.float64)
        for part in given.source.split(cut):
            result = small.hmlstm(part, weights, state, options)
            state = result.state
            loss = loss + sum(h.pow(2).sum() for h in result.hidden)
        loss.backward()
        found.append([a.grad for w in weights for a in w if a is not None])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
