"""Networks are made as torch's modules are: with a device, a dtype and sizes of any kind of whole number.

On the device meta, which has shapes and no numbers, a pass has shapes, and nothing is looked at.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hmrnn import HMLSTM, HMLSTMCell
from networks import NETWORKS, every_network
from refusals import refused


@every_network
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_dtype(kind: Any, dtype: torch.dtype) -> None:
    rnn = kind(3, 8, 2, dtype=dtype)
    assert {p.dtype for p in rnn.parameters()} == {dtype}
    _, state = rnn(torch.randn(4, 2, 3, dtype=dtype))
    assert {a.dtype for a in (*state.h, *state.c, state.z)} == {dtype}
    assert bool(state.h[1].isfinite().all())
    assert {p.dtype for p in kind(3, 8, 2).parameters()} == {torch.float32}


@every_network
def test_a_device(kind: Any) -> None:
    for rnn in (kind(3, 8, 2, device="meta"), kind(3, 8, 2, device=torch.device("meta"), dtype=torch.float16)):
        assert {a.device.type for a in (*rnn.parameters(), *rnn.buffers())} == {"meta"}
    empty, other = kind(3, 8, 2, device="meta").to_empty(device="cpu"), kind(3, 8, 2, device="cpu")
    for rnn in (empty, other):
        torch.manual_seed(1)
        rnn.reset_parameters()
    assert_equal(empty, other)
    assert torch.equal(empty(torch.ones(9, 1, 3))[0].hidden[1], other(torch.ones(9, 1, 3))[0].hidden[1])


def assert_equal(one: torch.nn.Module, other: torch.nn.Module) -> None:
    ours, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(p, theirs[name]) for name, p in ours.items())


def test_output_and_state_show_their_shapes() -> None:
    """Not their numbers, of which there are thousands."""
    x = torch.randn(5, 2, 3)
    out, state = HMLSTM(3, (4, 6), 2, flush=False, top_down="pending")(x)
    assert repr(out) == (
        "Output(hidden=[(5, 2, 4), (5, 2, 6)], boundaries=(5, 2, 1), probabilities=(5, 2, 1), operations=(5, 2, 2))"
    )
    with refused():
        out[:, -1]
    assert repr(state) == "State(h=[(2, 4), (2, 6)], c=[(2, 4), (2, 6)], z=(2, 1), pending=(2, 1))"
    out, states = HMLSTM(3, 4, 2, bidirectional=True)(torch.nn.utils.rnn.pack_sequence([x[:, 0], x[:3, 1]]))
    assert repr(out).startswith("Output(hidden=[packed (8, 8), packed (8, 8)], ")
    one = "State(h=[(2, 4), (2, 4)], c=[(2, 4), (2, 4)], z=(2, 1), pending=None)"
    assert repr(states) == f"States(ahead={one}, back={one})"


@pytest.mark.parametrize("more", [{}, {"bidirectional": True}, {"flush": False, "top_down": "pending"}], ids=str)
def test_a_state_goes_to_another_dtype_and_device(more: dict[str, Any]) -> None:
    x = torch.randn(5, 2, 3)
    rnn = HMLSTM(3, 4, 2, **more)
    state = rnn(x)[1]
    with refused():
        rnn.double()(x.double(), state)
    rnn(x.double(), state.to(torch.float64))
    parts = state.to("meta") if "bidirectional" in more else [state.to("meta")]
    assert {a.device.type for part in parts for a in (*part.h, *part.c, part.z)} == {"meta"}


def test_a_cell() -> None:
    cell = HMLSTMCell(3, 4, 5, layer_norm=True, device="meta", dtype=torch.float64)
    given = torch.empty(2, 3, device="meta", dtype=torch.float64), None, None, torch.empty_like(cell.V[:2])
    assert {(a.device.type, a.dtype) for a in (*cell.parameters(), cell.a, *cell(*given))} == {("meta", torch.float64)}
    cell = HMLSTMCell(3, 4, 5, dtype=torch.bfloat16)
    assert bool(torch.cat([p.flatten() for p in cell.parameters()]).isfinite().all())


def test_short_dtypes_start_from_rounded_numbers() -> None:
    torch.manual_seed(1)
    exact = HMLSTM(3, 4, 1)
    torch.manual_seed(1)
    assert_equal(HMLSTM(3, 4, 1, dtype=torch.bfloat16), exact.bfloat16())


@every_network
def test_sizes_may_be_numpy_s(kind: Any) -> None:
    rnn = kind(np.int64(3), np.array([8, 12]), np.uint8(2))
    assert rnn.hidden_sizes == (8, 12)
    assert {type(n) for n in (rnn.input_size, rnn.num_layers, *rnn.hidden_sizes)} == {int}
    for size in (np.int32(8), np.array(8), torch.tensor(8)):
        assert kind(3, size, 2).hidden_sizes == (8, 8)
    rnn(torch.zeros(2, 1, 3))


def test_sizes_of_a_cell_may_be_numpy_s() -> None:
    cell = HMLSTMCell(np.int64(3), np.int64(4), np.int64(5))
    assert {type(n) for n in (cell.input_size, cell.hidden_size, cell.above_size)} == {int}


@pytest.mark.parametrize("B", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_saved_state_is_loaded_as_weights_are(bidirectional: bool, B: int) -> None:
    """torch.load reads nothing but weights by default, and a run that carries its state saves that, too."""
    rnn, x, file = HMLSTM(3, 4, 2, bidirectional=bidirectional), torch.randn(5, B, 3), io.BytesIO()
    with torch.no_grad():  # the state of one sequence then carries prepared weights, which are not saved
        _, state = rnn(x)
    torch.save({"state": state}, file)
    file.seek(0)
    loaded = torch.load(file)["state"]
    assert isinstance(state, type(loaded))
    assert rnn(x, loaded)[0].hidden[-1].equal(rnn(x, state)[0].hidden[-1])


T, B, INPUT, SIZES = 5, 3, 4, (8, 6)


def shapes(tensors: Any) -> list[tuple[int, ...]]:
    assert {a.device.type for a in tensors} == {"meta"}
    return [tuple(a.shape) for a in tensors]


@pytest.mark.parametrize("options", [{}, {"layer_norm": True, "boundary": "sample", "zoneout": 0.1}])
def test_a_pass_has_the_shapes_of_one_with_numbers(options: dict[str, Any]) -> None:
    rnn = HMLSTM(INPUT, SIZES, 2, **options).to("meta")
    assert repr(rnn).endswith("engine='auto' (reference))")
    x = torch.empty(T, B, INPUT, device="meta")
    out, state = rnn(x, lengths=[5, 2, 1], boundaries=torch.empty(T, B, 1, device="meta"))
    assert shapes(out.hidden) == [(T, B, size) for size in SIZES]
    assert shapes((out.boundaries, out.probabilities, out.operations)) == [(T, B, 1), (T, B, 1), (T, B, 2)]
    assert shapes((*state.h, *state.c, state.z)) == [(B, size) for size in (*SIZES, *SIZES, 1)]
    symbols = torch.empty(T, B, device="meta", dtype=torch.int64)
    out, _ = rnn(symbols, state, embedding=torch.empty(9, INPUT, device="meta"))
    assert shapes(out.hidden) == [(T, B, size) for size in SIZES]


@pytest.mark.parametrize(
    "kind", [kind for name, kind in NETWORKS.items() if name not in ("hm-lstm", "cw-rnn", "h-net")]
)
def test_baselines_there(kind: Any) -> None:
    rnn = kind(INPUT, SIZES, 2).to("meta")
    out, state = rnn(torch.empty(T, B, INPUT, device="meta"))
    assert shapes(out.hidden) == [(T, B, size) for size in SIZES]
    assert shapes((*state.h, *state.c)) == [(B, size) for size in (*SIZES, *rnn.cell_sizes)]


def test_what_cannot_be_done_there_is_said() -> None:
    x: Tensor = torch.empty(T, B, INPUT, device="meta")
    with refused():
        HMLSTM(INPUT, SIZES, 2, engine="native").to("meta")(x)
    with refused("x"):
        HMLSTM(INPUT, SIZES, 2).to("meta")(x.double())
