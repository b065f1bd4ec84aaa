"""The options of the cell: parameters, cells, states and refusals; test_reference.py has their values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from against_reference import Case, make
from hmrnn import HMLSTM, HMLSTMCell, State
from hmrnn.ops import Options, Variant, reference
from hmrnn.training.terms.steering import bound_feedback
from hmrnn.training.terms.weights import decay
from pairs import CELLS
from refusals import refused


@pytest.mark.parametrize("cell", [{"flush": True}, {"flush": False, "copy": False}], ids=str)
def test_pending_is_the_rule_of_the_paper_where_a_layer_moves_after_its_boundary(cell: dict[str, bool]) -> None:
    assert Variant(top_down="pending", **cell).gate == "boundary"
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


@pytest.mark.parametrize("cell", [*CELLS, {"detector_hidden": 7}], ids=str)
def test_a_cell_is_a_layer_of_a_network(cell: dict[str, Any]) -> None:
    rnn = HMLSTM(3, (6, 5), 2, **cell).double()
    lower, upper = (HMLSTMCell(*sizes, dtype=torch.float64, **cell) for sizes in ((3, 6, 5), (6, 5)))
    for w, part in zip(rnn.layers(), (lower, upper)):
        part.load_state_dict({name: a for name, a in w._asdict().items() if a is not None} | {"a": rnn.a})
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    out, _ = rnn(x)
    below, above = lower.initial_state(2), upper.initial_state(2)
    for t in range(9):
        below = lower(x[t], below, above=None if cell.get("top_down") == "none" else above[0])
        above = upper(below[0], above, z_below=below[2])
        torch.testing.assert_close(below[0], out.hidden[0][t])
        torch.testing.assert_close(above[0], out.hidden[1][t])
    assert len(below) == (4 if Variant(**cell).gate == "pending" else 3)
    assert len(above) == 3


def test_a_detector_with_a_hidden_layer() -> None:
    rnn = HMLSTM(3, (5, 4, 6), 3, detector_hidden=7).double()
    shapes = {name: tuple(p.shape) for name, p in rnn.named_parameters() if name[0] in "UDd"}
    assert shapes == {
        "U.0": (20, 5), "U.1": (16, 4), "U.2": (24, 6), "D1.0": (7, 12), "D1.1": (7, 15), "d1.0": (7,), "d1.1": (7,),
        "D2.0": (1, 7), "D2.1": (1, 7), "d2.0": (1,), "d2.1": (1,),
    }  # fmt: skip
    rnn.set_detector_bias([-1.0, 2.0])
    assert [p.item() for p in rnn.d2] == [-1.0, 2.0]
    assert not rnn.b[0].any()
    with refused("detector_hidden"):
        HMLSTM(3, 4, 2, detector_hidden=-1)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    before = {name: p.detach().clone() for name, p in rnn.named_parameters()}
    decay(rnn, 0.5)
    for name, p in rnn.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * (0.5 if name[0] in "UVW" else 1.0))
    bound_feedback(rnn, 0.1, 0.0)
    for l, w in enumerate(rnn.layers()[:-1]):
        H, above = w.hidden_size, w.V.shape[1]
        assert 0.5 * 1.13 * (w.D2.abs() @ w.D1[:, H : H + above].abs()).sum() <= 0.1 + 1e-12
        torch.testing.assert_close(w.D1.detach()[:, :H], before[f"D1.{l}"][:, :H])


def test_sequences_that_are_not_kept_begin_at_zero() -> None:
    """Whatever was in them: not a number times zero would stay what it is. Also without detectors."""
    for detectors in (1, 0):
        h, c = (tuple(torch.randn(3, size) for size in (4, 2)) for _ in "hc")
        c[1][1] = torch.nan
        state = State(tuple(a.bfloat16() for a in h), c, torch.ones(3, detectors))
        kept = state.keep([True, False, True]).named()
        for name, before in state.named().items():
            assert kept[name].dtype == before.dtype
            assert kept[name][1].abs().sum() == 0
            assert torch.equal(kept[name][[0, 2]], before[[0, 2]])


def test_without_top_down_input_there_is_no_V_but_a_detector() -> None:
    rnn = HMLSTM(3, (6, 5), 2, layer_norm=True, top_down="none")
    assert not [name for name, _ in rnn.named_parameters() if "V" in name]
    assert [w.has_detector for w in rnn.layers()] == [True, False]


def test_how_they_are_given_and_shown() -> None:
    shown = repr(HMLSTM(3, 4, 2, flush=False, top_down="always", copy=False))
    assert all(part in shown for part in ("flush=False", "top_down='always'", "copy=False"))
    assert "flush=False" in repr(HMLSTMCell(3, 4, 2, flush=False))
    for kind in (HMLSTM, HMLSTMCell):
        with refused("top_down"):
            kind(3, 4, 2, top_down=True)
    rnn = HMLSTM(3, 4, 3, flush=False, top_down="pending")
    rnn.check_values = True
    for pending in (torch.zeros(2, 1), torch.full((2, 2), 2.0)):
        with refused("state.pending"):
            rnn(torch.zeros(1, 2, 3), rnn.initial_state(2)._replace(pending=pending))
    with refused("state"):
        HMLSTMCell(3, 4)(torch.zeros(1, 3), (*[torch.zeros(1, 4)] * 2, *[torch.zeros(1, 1)] * 2))
