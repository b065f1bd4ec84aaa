"""The options of the cell (flush, top_down, copy): cells, states and refusals; test_reference.py has their values."""

from __future__ import annotations

import itertools

import pytest
import torch

from against_reference import Case, evaluate, expected, make, worst
from hmrnn import HMLSTM, HMLSTMCell
from hmrnn.ops import Options, Variant, reference
from hmrnn.ops.interface import TOP_DOWN
from refusals import refused

CELLS = [
    {"flush": flush, "top_down": top_down, "copy": copy}
    for flush, top_down, copy in itertools.product((True, False), TOP_DOWN, (True, False))
]
cells = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell.values())))


@pytest.mark.parametrize("cell", [{"flush": True}, {"flush": False, "copy": False}], ids=str)
def test_pending_is_the_rule_of_the_paper_where_a_layer_moves_after_its_boundary(cell: dict[str, bool]) -> None:
    assert Variant(top_down="pending", **cell).gate == "boundary"
    given = make(Case(T=9, **cell), torch.float64)
    assert worst(evaluate(reference.hmlstm, given, torch.float64), expected(given))[0] == 0
    rnn = HMLSTM(3, 4, 3, top_down="pending", **cell)
    assert rnn.initial_state(2).pending is None
    assert HMLSTM(3, 4, 3, top_down="pending", flush=False).initial_state(2).pending.tolist() == [[0, 0], [0, 0]]


def test_a_state_without_pending_gates_starts_from_z() -> None:
    given = make(Case(T=3, flush=False, top_down="pending"), torch.float64)
    start = given.state._replace(pending=None)
    options = Options(given.case.variant, given.slope)
    a, b = (
        reference.hmlstm(given.source, given.weights, state, options).hidden[0]
        for state in (start, start._replace(pending=start.z))
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, reference.hmlstm(given.source, given.weights, given.state, options).hidden[0])


@cells
def test_a_cell_is_a_layer_of_a_network(cell: dict[str, object]) -> None:
    rnn = HMLSTM(3, (6, 5), 2, **cell).double()  # type: ignore[arg-type]
    lower = HMLSTMCell(3, 6, above_size=5, dtype=torch.float64, **cell)  # type: ignore[arg-type]
    upper = HMLSTMCell(6, 5, dtype=torch.float64, **cell)  # type: ignore[arg-type]
    for l, part in enumerate((lower, upper)):
        part.load_state_dict({name: a for name, a in rnn.layers()[l]._asdict().items() if a is not None} | {"a": rnn.a})
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    out, _ = rnn(x)
    below, above = lower.initial_state(2), upper.initial_state(2)
    for t in range(9):
        below = lower(x[t], below, above=None if cell["top_down"] == "none" else above[0])
        above = upper(below[0], above, z_below=below[2])
        torch.testing.assert_close(below[0], out.hidden[0][t])
        torch.testing.assert_close(above[1] * 0 + above[0], out.hidden[1][t])
    assert len(below) == (4 if Variant(**cell).gate == "pending" else 3)  # type: ignore[arg-type]
    assert len(above) == 3


def test_without_top_down_input_there_is_no_V_but_a_detector() -> None:
    rnn = HMLSTM(3, (6, 5), 2, layer_norm=True, top_down="none")
    assert not [name for name, _ in rnn.named_parameters() if "V" in name]
    assert [w.has_detector for w in rnn.layers()] == [True, False]
    assert rnn.U[0].shape == (25, 6)


def test_how_they_are_given_and_shown() -> None:
    shown = repr(HMLSTM(3, 4, 2, flush=False, top_down="always", copy=False))
    assert all(part in shown for part in ("flush=False", "top_down='always'", "copy=False"))
    assert "flush" not in repr(HMLSTM(3, 4, 2))
    assert "flush=False" in repr(HMLSTMCell(3, 4, 2, flush=False))
    for kind, bad in itertools.product((HMLSTM, HMLSTMCell), ({"flush": "no"}, {"top_down": True})):
        with refused():
            kind(3, 4, 2, **bad)
    rnn = HMLSTM(3, 4, 3, flush=False, top_down="pending")
    rnn.check_values = True
    for pending in (torch.zeros(2, 1), torch.full((2, 2), 2.0)):
        with refused("state.pending"):
            rnn(torch.zeros(1, 2, 3), rnn.initial_state(2)._replace(pending=pending))
    with refused("state"):
        HMLSTMCell(3, 4)(torch.zeros(1, 3), (*[torch.zeros(1, 4)] * 2, *[torch.zeros(1, 1)] * 2))
