"""The options of the cell for one sequence and step by step, without a gradient: the reference, at the sparse cost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from against_reference import Case, evaluate, expected, make, worst
from hmrnn import HMLSTM
from hmrnn.ops import Options, Result, State, reference, streaming
from hmrnn.ops.interface import TOP_DOWN
from hmrnn.ops.single import forward as single
from hmrnn.ops.single import layer as single_layer
from pairs import grid

CELLS = [
    {"flush": flush, "top_down": top_down, "copy": copy}
    for flush, top_down, copy in itertools.product((True, False), TOP_DOWN, (True, False))
]
MORE = [
    {"layer_norm": True, "on_copy": "hold", "zoneout": "share"},
    {"forced": "some"},
    {"sizes": (4, 3, 5, 2)},
    {"hidden": 6, "layer_norm": True, "forced": "some", "sizes": (4, 3, 5, 2)},
    {"hidden": 6, "on_copy": "hold"},
    {"hidden": 6, "boundary": "soft", "detector": 0.3},
    {"boundary": "soft", "detector": 0.3, "forced": "some"},
]


def one_sequence(*given: Any, lengths: None, noise: None, **named: Any) -> Result:
    return single.hmlstm(*given, **named)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_one_sequence(cell: dict[str, object]) -> None:
    for more in (more for more in MORE if "boundary" not in more):
        given = make(Case(T=12, B=1, **more, **cell), torch.float64)  # type: ignore[arg-type]
        with torch.no_grad():
            got = evaluate(one_sequence, given, torch.float64, gradients=False)
        error, name = worst(got, expected(given, gradients=False))
        assert error < 1e-10, f"{more} {name}: {error}"


@pytest.mark.parametrize(
    ("batch", "flush", "top_down", "copy", "more"), grid((1, 3), (True, False), TOP_DOWN, (True, False), MORE)
)
def test_step_by_step(batch: int, flush: bool, top_down: Any, copy: bool, more: dict[str, Any]) -> None:
    case = Case(T=12, B=batch, flush=flush, top_down=top_down, copy=copy, **more)
    given = make(case, torch.float64)
    zoneout = 0.0 if case.zoneout == "no" else 0.25
    options = Options(
        given.slope, case.boundary, case.on_copy, flush, top_down, copy, zoneout=zoneout, detector_hidden=case.hidden
    )  # type: ignore[arg-type]
    want = reference.hmlstm(given.source, given.weights, given.state, options, boundaries=given.forced)
    state = given.state
    for t in range(case.T):
        forced = None if given.forced is None else given.forced[t]
        step = streaming.step(given.source[t], given.weights, state, options, forced)
        state = step.state
        pairs = [*zip(state.h, (h[t] for h in want.hidden)), (state.z, want.boundaries[t])]
        for a, b in [*pairs, (step.probabilities, want.probabilities[t])]:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(state.pending, want.state.pending, rtol=1e-10, atol=1e-10)


class Multiplied(TorchDispatchMode):
    """Which matrices a product is made with, each time it is made."""

    def __init__(self, rnn: HMLSTM) -> None:
        super().__init__()
        self.name_of = {a.data_ptr(): name for name, a in rnn.named_parameters()}
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.mv, torch.ops.aten.mm, torch.ops.aten.addmm):
            leaves = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor) and a.dim() == 2]
            self.names += [self.name_of[a.data_ptr()] for a in leaves if a.data_ptr() in self.name_of]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("top_down", ["always", "pending", "boundary"])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_layer_above_is_multiplied_once_per_event(
    top_down: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With "always", steps of a batch multiply it whenever the layer itself moves."""
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: False)  # all products are torch's, and counted
    rnn = HMLSTM(3, (4, 5, 6), 3, flush=False, top_down=top_down)  # type: ignore[arg-type]
    forced = torch.zeros(20, batch, 2)
    forced[4::5, :, 0] = 1  # the second layer moves at steps 4, 9, 14 and 19
    state = None
    with Multiplied(rnn) as multiplied:
        for t in range(20):
            state = rnn.step(torch.randn(batch, 3), state, forced[t]).state
    # the first layer reads it at the steps after those, 5, 10 and 15, and with "always" at the first step
    always = (4, 1) if batch == 1 else (20, 4)
    assert multiplied.names.count("V.0") == (always[0] if top_down == "always" else 3)
    assert multiplied.names.count("U.1") == multiplied.names.count("W.1") == 4
    # the second layer reads the third when it moves, and the third never moves
    assert multiplied.names.count("V.1") == (always[1] if top_down == "always" else 0)
    assert multiplied.names.count("U.2") == 0


@pytest.mark.parametrize("change", ["h in place", "another h", "V in place", "D1 in place", "d1 in place"])
def test_a_product_is_not_believed_after_a_change(change: str) -> None:
    hidden = 3 if change[0] in "Dd" else 0
    rnn = HMLSTM(3, (4, 5, 6), 3, flush=False, top_down="always", detector_hidden=hidden)
    rnn = rnn.double().requires_grad_(False)
    x, copying = torch.randn(1, 3, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    state = rnn.step(x, None, torch.ones_like(copying)).state
    state = rnn.step(x, state, copying).state
    if change == "h in place":
        state.h[1].add_(0.3)
    elif change == "another h":
        state = state._replace(h=(state.h[0], state.h[1] + 0.3, state.h[2]))
    else:
        getattr(rnn, change.split()[0])[1 if hidden else 0].add_(0.3)
    found, wanted = rnn.step(x, state, copying), rnn.step(x, State(*state), copying)
    torch.testing.assert_close(found.state.h, wanted.state.h, rtol=0, atol=0)
    torch.testing.assert_close(found.probabilities, wanted.probabilities, rtol=0, atol=1e-15)
