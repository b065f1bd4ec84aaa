"""Numbers at the limits of float32: every engine gives finite states, or the module says what is wrong.

Forced boundaries are always checked, x and symbols on a CPU; ``check_values`` checks everything everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hmrnn
from hmrnn.nn.baselines.clockwork import ClockworkRNN
from hmrnn.nn.baselines.recurrent import LSTM
from hmrnn.ops import reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.native import engine as native
from refusals import refused

ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda", "reference cuda", "step cuda")]
ENDS = [(False, 1e30), *((norm, value) for norm in (False, True) for value in (1e15, 1e-38, 1e-45, 0.0))]
"""With or without layer normalisation, and numbers that are not refused."""
REFUSED = [(True, 1e16), *((norm, v) for norm in (False, True) for v in (math.nan, math.inf, -math.inf, 1e35))]

on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def finite(*tensors: Tensor) -> bool:
    return all(bool(a.isfinite().all()) for a in tensors)


def extreme(value: float, batch: int = 1) -> Tensor:
    """(9, batch, 6) of ordinary size, but for some steps and one number."""
    x = torch.randn(9, batch, 6)
    x[1], x[3], x[4, 0, 1], x[6] = value, -value, value, value * torch.randn(batch, 6).clamp(-1, 1)
    return x


def read(rnn: hmrnn.HMLSTM, x: Tensor, way: str) -> list[Tensor]:
    """Everything that comes of x (T, B, size), by one of the ways in which it can be computed."""
    engines: dict[str, Any] = {"reference": reference, "native": native, "cuda": cuda}
    if (name := way.split()[0]) in engines:
        with torch.no_grad():
            result = engines[name].hmlstm(x, rnn.layers(), rnn.initial_state(x.shape[1]), rnn.options())
        return [*result.hidden, *result.state.c, result.probabilities]
    state, found = None, []
    for now in x:
        made = rnn.step(now, state)
        state = made.state
        found += [*made.state.h, *made.state.c, made.probabilities]
    return found


@pytest.mark.parametrize("way", ["reference", "native", "step", *ON_GPU])
@pytest.mark.parametrize(("layer_norm", "value"), ENDS)
def test_finite_in_finite_out(way: str, layer_norm: bool, value: float) -> None:
    device = "cuda" if "cuda" in way else "cpu"
    rnn = hmrnn.HMLSTM(6, 8, 3, layer_norm=layer_norm).to(device)
    x = extreme(value).to(device)
    assert finite(*read(rnn, x, way))
    out, state = rnn(x)
    assert finite(*out.hidden, *state.h, *state.c)


@pytest.mark.parametrize("engine", ["reference", "native"])
def test_weights_beyond_all_bounds_are_not_hidden(engine: str) -> None:
    """A training that diverged shows: layer norm of numbers whose squares overflow is NaN."""
    rnn = hmrnn.HMLSTM(6, 8, 3, layer_norm=True, engine=engine)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(1e25)
    assert rnn(torch.randn(9, 2, 6))[0].hidden[0].isnan().any()


@on_every_device
@pytest.mark.parametrize("kind", [hmrnn.HMLSTM, LSTM, ClockworkRNN])
@pytest.mark.parametrize(("layer_norm", "value"), REFUSED)
def test_what_cannot_be_read_is_named(kind: Any, layer_norm: bool, value: float, device: str) -> None:
    """x on a CPU, everything if asked for; in the padding it may stand."""
    rnn = kind(3, 8, 2, layer_norm=layer_norm, check_values=device != "cpu").to(device)
    x = torch.zeros(5, 2, 3, device=device)
    x[3, 1, 2] = value
    calls: list[Callable[..., object]] = [lambda: rnn(x), lambda: rnn.step(x[3])]
    if kind is hmrnn.HMLSTM:
        first = kind(3, 8, 2, batch_first=True, layer_norm=layer_norm, check_values=device != "cpu").to(device)
        calls.append(lambda: first(x.transpose(0, 1)))
    for call in calls:
        with refused("x"):
            call()
    out, _ = rnn(x, lengths=[5, 3])
    assert finite(*out.hidden)
    rnn.check_values = True
    symbol, table = torch.zeros(5, 2, dtype=torch.int64, device=device), torch.zeros(7, 3, device=device)
    for part in ("h", "c"):
        state = rnn.initial_state(2)
        getattr(state, part)[1][0, 4] = value
        for read in (lambda s: rnn(x[:3], s), lambda s: rnn.step(x[0], s), lambda s: rnn(symbol, s, embedding=table)):
            with refused(f"state.{part}[1]"):
                read(state)


@on_every_device
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -0.1, 1.1])
def test_boundaries_are_checked(value: float, device: str) -> None:
    """Forced ones always, those of a state if asked for."""
    rnn, x = hmrnn.HMLSTM(3, 4, 3, check_values=True).to(device), torch.zeros(5, 2, 3, device=device)
    state = rnn.initial_state(2)
    state.z[1, 0] = value
    for call in (lambda: rnn(x, state), lambda: rnn.step(x[0], state)):
        with refused("state.z"):
            call()
    rnn.check_values = False
    forced = torch.zeros(5, 2, 2, device=device)
    forced[0], forced[2, 1, 1] = math.nan, value
    if math.isnan(value):  # left to the detector
        assert finite(*rnn(x, boundaries=forced)[0].hidden)
        return
    with refused("boundaries"):
        rnn(x, boundaries=forced)
    with refused("boundaries"):
        rnn.step(x[0], boundaries=forced[2])
    assert finite(*rnn(x, boundaries=forced, lengths=[5, 2])[0].hidden)


@pytest.mark.parametrize("way", ["reference", "native", "step", *ON_GPU])
def test_nan_that_nobody_looked_for_stays_visible(way: str) -> None:
    """h of the first layer is NaN from that step on, in that sequence."""
    device = "cuda" if "cuda" in way else "cpu"
    rnn = hmrnn.HMLSTM(6, 8, 3).to(device)
    x = torch.randn(9, 2, 6, device=device)
    x[4, 0, 1] = math.nan
    if way.startswith("step"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hmrnn.nn.recurrent.check_size", lambda *given: None)
            h = torch.stack(read(rnn, x, way)[::7])
    else:
        h = read(rnn, x, way)[0]
    assert h[:, 0].isnan().any(-1).tolist() == [False] * 4 + [True] * 5
    assert finite(h[:, 1:])


@on_every_device
def test_symbols_are_rows_of_the_embedding(device: str) -> None:
    for rnn in (hmrnn.HMLSTM(3, 4, 3), LSTM(3, 4, 2, layer_norm=True), LSTM(3, 4, 2)):
        rnn.to(device).check_values = device != "cpu"
        table = torch.randn(7, 3, device=device)
        for wrong in (-1, 7, 2**40):
            symbols = torch.zeros(5, 2, dtype=torch.int64, device=device)
            symbols[3, 1] = wrong
            with refused("x"):
                rnn(symbols, embedding=table)
            assert finite(*rnn(symbols, lengths=[5, 3], embedding=table)[0].hidden)
        table[4, 2] = math.nan
        with refused("embedding"):
            rnn(symbols, lengths=[5, 3], embedding=table)


CELL: dict[str, tuple[int, ...]] = {
    "x": (2, 6),
    "h": (2, 8),
    "c": (2, 8),
    "above": (2, 5),
    "z": (2, 1),
    "z_below": (2, 1),
}


def run_cell(cell: hmrnn.HMLSTMCell, given: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return cell(given["x"], (given["h"], given["c"], given["z"]), given["z_below"], given["above"])


@on_every_device
@pytest.mark.parametrize(("layer_norm", "value"), REFUSED)
def test_a_cell_names_what_it_cannot_read(layer_norm: bool, value: float, device: str) -> None:
    cell = hmrnn.HMLSTMCell(6, 8, 5, layer_norm=layer_norm, check_values=True).to(device)
    for name in CELL:
        given = {other: torch.zeros(size, device=device) for other, size in CELL.items()}
        given[name][1, -1] = value
        with refused(name):
            run_cell(cell, given)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_values_are_checked_on_another_device_than_the_current() -> None:
    rnn = hmrnn.HMLSTM(3, 4, 2, check_values=True).to("cuda:1")
    with torch.cuda.device(0), refused("x"):
        rnn(torch.full((500, 64, 3), math.nan, device="cuda:1"))


@pytest.mark.gpu
def test_a_captured_graph_checks_nothing() -> None:
    """NaN in, NaN out."""
    rnn, x = hmrnn.HMLSTM(6, 8, 3, check_values=True).cuda(), torch.zeros(9, 2, 6, device="cuda")
    with torch.no_grad():
        rnn(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            hidden = rnn(x)[0].hidden[0]
        x.fill_(math.nan)
        graph.replay()
        assert bool(hidden.isnan().all())
        with refused("x"):
            rnn(x)
