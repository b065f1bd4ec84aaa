"""The device meta, which has shapes and no numbers: what a pass would give is known there, and nothing is looked at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hmrnn import HMLSTM, HMLSTMCell
from hmrnn.nn.baselines.cells import LeakyRNN, OutputRNN, PeepholeLSTM, SkipRNN, TimeDelayNetwork
from hmrnn.nn.baselines.echo_state import EchoStateNetwork
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from refusals import refused

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


def test_a_cell() -> None:
    cell = HMLSTMCell(INPUT, 5, 3).to("meta")
    h, c, z = cell(torch.empty(B, INPUT, device="meta"), above=torch.empty(B, 3, device="meta"))
    assert shapes((h, c, z)) == [(B, 5), (B, 5), (B, 1)]


@pytest.mark.parametrize(
    "kind", [LSTM, GRU, LeakyRNN, SkipRNN, TimeDelayNetwork, PeepholeLSTM, OutputRNN, EchoStateNetwork]
)
def test_baselines(kind: Any) -> None:
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
