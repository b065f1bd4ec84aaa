"""HMLSTMCell: one layer and one step of an HMLSTM."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hmrnn import HMLSTM, HMLSTMCell
from refusals import refused

INPUT, SIZES, B, T = 4, (6, 5, 3), 3, 12


def cells_of(rnn: HMLSTM, **options: object) -> list[HMLSTMCell]:
    """The layers of ``rnn``, each as a cell with the same parameters."""
    cells = []
    for l, w in enumerate(rnn.layers()):
        above = None if l == 2 else SIZES[l + 1]
        cell = HMLSTMCell((INPUT, *SIZES)[l], SIZES[l], above, **options).to(rnn.a)
        cell.load_state_dict({k: v for k, v in w._asdict().items() if v is not None} | {"a": rnn.a})
        cells.append(cell)
    return cells


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_cells_make_an_hmlstm(layer_norm: bool, on_copy: str, boundary: str) -> None:
    options = {"layer_norm": layer_norm, "on_copy": on_copy, "boundary": boundary}
    rnn = HMLSTM(INPUT, SIZES, 3, engine="reference", **options).double()
    rnn.slope = 1.5
    cells = cells_of(rnn, **options)
    x = torch.randn(T, B, INPUT, dtype=torch.float64, requires_grad=True)
    out, end = rnn(x)

    zeros = rnn.initial_state(B)
    states = [(h, c, torch.zeros(B, 1, dtype=torch.float64)) for h, c in zip(zeros.h, zeros.c)]
    hidden: list[list[Tensor]] = [[] for _ in cells]
    for t in range(T):
        before, below, z_below = list(states), x[t], None
        for l, cell in enumerate(cells):
            states[l] = cell(below, before[l], z_below, before[l + 1][0] if l < 2 else None)
            below, _, z_below = states[l]
            hidden[l].append(below)
    for l in range(3):
        assert torch.equal(torch.stack(hidden[l]), out.hidden[l])
        assert torch.equal(states[l][1], end.c[l])
    assert torch.equal(torch.cat([states[0][2], states[1][2]], dim=1), end.z)
    assert states[2][2].abs().max() == 0

    (want,) = torch.autograd.grad(out.hidden[2].sum() + out.hidden[0].sum(), x)
    (got,) = torch.autograd.grad(torch.stack(hidden[2]).sum() + torch.stack(hidden[0]).sum(), x)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_a_top_cell_never_flushes() -> None:
    cell = HMLSTMCell(INPUT, 5)
    x, h, c = torch.randn(B, INPUT), torch.randn(B, 5), torch.randn(B, 5)
    for z in (torch.zeros(B, 1), torch.ones(B, 1)):
        _, c_new, z_new = cell(x, (h, c, z))
        assert torch.equal(z_new, torch.zeros(B, 1))
        assert torch.equal(c_new, cell(x, (h, c, torch.zeros(B, 1)))[1])
        assert not torch.equal(c_new, cell(x, (h, 2 * c, z))[1])
    held, _, _ = cell(x, (h, c, torch.zeros(B, 1)), z_below=torch.zeros(B, 1))
    assert torch.equal(held, h)


def test_parameters_and_repr() -> None:
    cell = HMLSTMCell(4, 6, 5, layer_norm=True)
    shapes = {name: tuple(a.shape) for name, a in cell.state_dict().items()}
    assert shapes == {
        "U": (25, 6), "W": (25, 4), "V": (25, 5), "b": (25,), "a": (),
        "gain_U": (24,), "gain_W": (24,), "gain_V": (24,), "gain_c": (6,), "bias_c": (6,),
    }  # fmt: skip
    assert {name: tuple(a.shape) for name, a in HMLSTMCell(4, 6).state_dict().items()} == {
        "U": (24, 6), "W": (24, 4), "b": (24,), "a": (),
    }  # fmt: skip
    assert repr(cell) == "HMLSTMCell(4, 6, layer_norm=True, above_size=5)"
    cell = HMLSTMCell(4, 6, boundary="soft", on_copy="hold")
    assert repr(cell) == "HMLSTMCell(4, 6, boundary='soft', on_copy='hold')"


def good() -> dict[str, Tensor]:
    return {
        "x": torch.zeros(3, 4), "h": torch.zeros(3, 6), "c": torch.zeros(3, 6), "z": torch.zeros(3, 1),
        "z_below": torch.ones(3, 1), "above": torch.zeros(3, 5),
    }  # fmt: skip


def call(cell: HMLSTMCell, **changed: Tensor | None) -> None:
    given = good() | changed
    cell(given["x"], (given["h"], given["c"], given["z"]), given["z_below"], given["above"])


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"x": torch.zeros(3, 5)}, "x"),
        ({"x": torch.zeros(4)}, "x"),
        ({"h": torch.zeros(3, 5)}, "h"),
        ({"c": torch.zeros(1, 6)}, "c"),
        ({"z": torch.zeros(3)}, "z"),
        ({"z_below": torch.zeros(3, 6)}, "z_below"),
        ({"above": torch.zeros(3, 6)}, "above"),
        ({"above": None}, "above"),
        ({"h": torch.zeros(3, 6).double()}, "h"),
        ({"c": torch.zeros(3, 6, device="meta")}, "c"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Tensor | None], name: str) -> None:
    call(HMLSTMCell(4, 6, 5))
    with refused(name):
        call(HMLSTMCell(4, 6, 5), **changed)


def test_bad_construction_is_named() -> None:
    with refused("above"):
        call(HMLSTMCell(4, 6))
    with refused("above_size"):
        HMLSTMCell(4, 6, 0)
    with refused("hidden_size"):
        HMLSTMCell(4, 2.5)
