"""The options of the cell on the sparse engine: exactly the reference, at the sparse cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from against_reference import Case, evaluate, expected, make, worst
from hmrnn.ops import Options, choose_engine
from hmrnn.ops.interface import TOP_DOWN, TopDown
from hmrnn.ops.sparse import forward as sparse
from pairs import grid

MORE = [
    {"layer_norm": True, "on_copy": "hold", "forced": "some", "lengths": True, "straight_through": True},
    {"boundary": "sample", "on_copy": "hold", "zoneout": "masks", "dropout": True, "symbols": 5},
    {"boundary": "sample", "layer_norm": True, "lengths": True, "forced": "some"},
    {"boundary": "gumbel", "on_copy": "hold", "forced": "some", "straight_through": True},
    {"boundary": "reinforce", "layer_norm": True, "on_copy": "hold", "lengths": True},
    {"layer_norm": True, "dropout": True, "zoneout": "share", "sizes": (4, 3, 5, 2)},
    {"forced": "all"},
]


@pytest.mark.parametrize(("flush", "top_down", "copy", "more"), grid((False, True), TOP_DOWN, (True, False), MORE))
def test_outputs_and_gradients_are_those_of_the_reference(
    flush: bool, top_down: TopDown, copy: bool, more: dict[str, Any]
) -> None:
    assert choose_engine("auto", torch.device("cpu"), Options(flush=flush, top_down=top_down, copy=copy)) == "sparse"
    given = make(Case(T=8, B=4, flush=flush, top_down=top_down, copy=copy, **more), torch.float64)
    error, name = worst(evaluate(sparse.hmlstm, given, torch.float64), expected(given))
    assert error < 1e-10, f"{name}: {error}"
    with torch.no_grad():
        got = evaluate(sparse.hmlstm, given, torch.float64, gradients=False)
    error, name = worst(got, expected(given, gradients=False))
    assert error < 1e-12, f"{name}: {error}"


def products(T: int, gradients: bool = False, **cell: object) -> int:
    """Multiply-adds of a pass with given boundaries."""
    case = Case(sizes=(48, 48, 48), T=T, B=8, forced="all", straight_through=True, **cell)  # type: ignore[arg-type]
    given = make(case, torch.float64)
    given.forced = torch.zeros(T, 8, 2, dtype=torch.float64)
    given.forced[::5, :, 0] = given.forced[::15, :, 1] = 1.0
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(gradients):
        evaluate(sparse.hmlstm, given, torch.float64, gradients=gradients)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("top_down", TOP_DOWN)
@pytest.mark.parametrize("hidden", [0, 5])
def test_a_row_that_copies_multiplies_nothing(top_down: str, hidden: int) -> None:
    """U and V are multiplied once per event, W for the rows that read it; so is D1, and D2 at every step."""
    H, B, steps = 48, 8, 30
    cell = {"flush": False, "top_down": top_down, "hidden": hidden}
    got = products(46, **cell) - products(16, **cell)
    second, third = steps // 5, steps // 15  # events
    rows = hidden or 1
    gates, detector = 4 * H * H * B, rows * H * B
    events = {"U": steps + second + third, "W": second + third, "V": 0 if top_down == "none" else second + third}
    of_detectors = (steps + second) + second + events["V"]
    expected = gates * sum(events.values()) + detector * of_detectors + (4 * H + rows) * 3 * B * steps
    assert got == expected + 2 * hidden * B * steps


def test_the_backward_pass_is_sparse_too() -> None:
    cell = {"flush": False, "top_down": "pending"}
    assert products(15, gradients=True, **cell) < 0.6 * products(15, gradients=True, copy=False, flush=False)
