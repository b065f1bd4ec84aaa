"""Numbers at the ends of what float32 can hold: every engine gives finite states, or the module says what is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import hmrnn
from hmrnn.errors import InputError
from hmrnn.ops import reference, single, sparse

WAYS = ("reference", "sparse", "single", "step")


def read(rnn: hmrnn.HMLSTM, x: torch.Tensor, way: str) -> list[torch.Tensor]:
    """Everything that comes of x (T, B, size), by one of the ways in which it can be computed on a CPU."""
    engines: dict[str, Any] = {"reference": reference, "sparse": sparse, "single": single}
    if way in engines:
        with torch.no_grad():
            result = engines[way].hmlstm(x, rnn.layers(), rnn.initial_state(x.shape[1]), rnn.options())
        return [*result.hidden, *result.state.c, result.probabilities]
    state, found = None, []
    for now in x:
        made = rnn.step(now, state)
        state = made.state
        found += [*made.state.h, *made.state.c, made.probabilities]
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("layer_norm", "value"), [(False, 1e30), *((norm, v) for norm in (False, True) for v in (1e15, 1e-38, 1e-45, 0.0))]
)
def test_finite_in_finite_out(way: str, layer_norm: bool, value: float) -> None:
    rnn = hmrnn.HMLSTM(6, 8, 3, layer_norm=layer_norm)
    x = torch.randn(9, 1, 6)
    x[1], x[3], x[4, 0, 1], x[6] = value, -value, value, value * torch.randn(1, 6).clamp(-1, 1)
    assert all(bool(a.isfinite().all()) for a in read(rnn, x, way))
    assert rnn(x)[1].h[0].isfinite().all()


@pytest.mark.parametrize("boundary", ["step", "sample", "soft"])
def test_gradients_too(boundary: Any) -> None:
    rnn = hmrnn.HMLSTM(6, 8, 3, boundary=boundary)
    x = torch.randn(9, 2, 6)
    x[1], x[4], x[5] = 1e30, -1e30, 1e-45
    sum(h.sum() for h in rnn(x)[0].hidden).backward()
    assert all(bool(p.grad.isfinite().all()) for p in rnn.parameters() if p.grad is not None)


@pytest.mark.parametrize("engine", ["auto", "reference", "sparse"])
@pytest.mark.parametrize(
    ("layer_norm", "value"),
    [(True, 1e16), *((norm, v) for norm in (False, True) for v in (math.nan, math.inf, -math.inf, 1e35))],
)
def test_what_cannot_be_read_is_named(engine: str, layer_norm: bool, value: float) -> None:
    rnn = hmrnn.HMLSTM(3, 4, 2, layer_norm=layer_norm, engine=engine)
    x = torch.zeros(5, 2, 3)
    x[3, 1, 2] = value
    limit = r"1e\+15 in size with layer_norm, which squares it" if layer_norm else r"1e\+31 in size"
    said = rf"x must be finite and at most {limit}; got {format(value, 'g').replace('+', '.')} in "
    with pytest.raises(InputError, match=said + "step 3 of sequence 1, at position 2"):
        rnn(x)
    with pytest.raises(InputError, match=said + "step 3 of sequence 1, at position 2"):
        hmrnn.HMLSTM(3, 4, 2, layer_norm=layer_norm, batch_first=True)(x.transpose(0, 1))
    with pytest.raises(InputError, match=said + "sequence 1, at position 2"):
        rnn.step(x[3])
    out, _ = rnn(x, lengths=[5, 3])  # in the padding it may stand
    assert all(bool(h.isfinite().all()) for h in out.hidden)
