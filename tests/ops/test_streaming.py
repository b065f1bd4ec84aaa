"""``rnn.step``: the forward pass one step at a time, without the work of layers that copy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hmrnn import HMLSTM, InputError, Operation
from hmrnn.nn.output import operations
from hmrnn.ops import Options, State, hmlstm, streaming
from hmrnn.ops.single import layer as single_layer
from literal import random_state, random_weights
from pairs import grid

T, INPUT, SIZES = 10, 4, (6, 5, 4)


@pytest.mark.parametrize(
    ("layer_norm", "on_copy", "boundary", "batch", "sizes"),
    grid((False, True), ("hold", "evaluate"), ("step", "sample", "soft"), (1, 5), (SIZES, (4,))),
)
def test_steps_are_the_forward_pass(
    layer_norm: bool, on_copy: str, boundary: str, batch: int, sizes: tuple[int, ...]
) -> None:
    weights, state = random_weights(INPUT, sizes, layer_norm), random_state(sizes, batch)
    x = torch.randn(T, batch, INPUT, dtype=torch.float64)
    options = Options(1.3, boundary, on_copy)
    expected = hmlstm(x, weights, state, options)
    done = operations(expected.boundaries, state.z)
    for t in range(T):
        step = streaming.step(x[t], weights, state, options)
        state = step.state
        close = {"rtol": 0, "atol": 1e-12}
        for h, hidden in zip(state.h, expected.hidden):
            torch.testing.assert_close(h, hidden[t], **close)
        torch.testing.assert_close(state.z, expected.boundaries[t], **close)
        torch.testing.assert_close(step.probabilities, expected.probabilities[t], **close)
        if boundary != "soft":
            assert torch.equal(step.changed, done[t] != Operation.COPY)
    for got, want in zip(state.c, expected.state.c):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_zoneout_is_that_of_the_forward_pass(boundary: str) -> None:
    weights, state = random_weights(INPUT, SIZES, True), random_state(SIZES, 5)
    x, options = torch.randn(T, 5, INPUT, dtype=torch.float64), Options(1.3, boundary, zoneout=0.3)
    expected = hmlstm(x, weights, state, options, engine="reference")
    for t in range(T):
        state = streaming.step(x[t], weights, state, options).state
        torch.testing.assert_close(state.h[1], expected.hidden[1][t], rtol=0, atol=1e-12)


@pytest.mark.parametrize("boundary", ["step", "sample"])
def test_module_step_is_module_forward(boundary: str) -> None:
    rnn = HMLSTM(INPUT, SIZES, 3, layer_norm=True, boundary=boundary, batch_first=True, engine="reference").eval()
    rnn.double().slope = 1.6
    x = torch.randn(5, T, INPUT, dtype=torch.float64)
    out, end = rnn(x)
    state = None
    for t in range(T):
        state = rnn.step(x[:, t], state).state
        assert torch.equal(state.z, out.boundaries[:, t])
    assert state is not None
    for got, want in zip((*state.h, *state.c), (*end.h, *end.c)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    assert not any(a.requires_grad for a in (*state.h, *state.c, state.z))


def test_step_takes_forced_boundaries() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3, layer_norm=True, engine="reference").double()
    x = torch.randn(T, 5, INPUT, dtype=torch.float64)
    forced = (torch.rand(T, 5, 2) < 0.4).double()
    forced[::3, :, 1] = torch.nan
    out, _ = rnn(x, boundaries=forced)
    state = None
    for t in range(T):
        state = rnn.step(x[t], state, boundaries=forced[t]).state
        assert torch.equal(state.z, out.boundaries[t])
        torch.testing.assert_close(state.h[2], out.hidden[2][t], rtol=0, atol=1e-10)
    with pytest.raises(InputError, match=r"\(B, detectors\) = \(5, 2\)"):
        rnn.step(x[0], boundaries=forced[0, :, :1])


def test_a_stream_may_go_on_from_a_pass_and_a_pass_from_a_stream() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3).double()
    x = torch.randn(T, 2, INPUT, dtype=torch.float64)
    out, _ = rnn(x)
    _, state = rnn(x[:4])
    for t in range(4, 8):
        state = rnn.step(x[t], state).state
    rest, _ = rnn(x[8:], state)
    torch.testing.assert_close(rest.hidden[2], out.hidden[2][8:], rtol=0, atol=1e-12)


def test_a_stream_draws_nothing() -> None:
    """While training, too, it is that of eval(): neither boundaries nor what is dropped."""
    rnn = HMLSTM(INPUT, 16, 3, boundary="sample", weight_drop=0.5, dropout=0.5, zoneout=0.3)
    x = torch.randn(9, 3, INPUT)

    def stream() -> list[Tensor]:
        state, seen = None, []
        for x_t in x:
            state = rnn.step(x_t, state).state
            seen += [*state.h, *state.c, state.z]
        return seen

    drawn, again, whole = stream(), stream(), rnn.eval()(x)[1]
    assert all(map(torch.equal, drawn, again))
    assert all(map(torch.equal, drawn, stream()))
    torch.testing.assert_close(drawn[-3:], [*whole.c[1:], whole.z])


PRODUCTS = {getattr(torch.ops.aten, name) for name in ("mm", "addmm", "linear", "mv", "addmv", "dot")}


class Touched(TorchDispatchMode):
    """Which layers' parameters any operation reads, and how many matrix products run."""

    def __init__(self, rnn: HMLSTM) -> None:
        super().__init__()
        self.layer_of = {a.data_ptr(): l for l, w in enumerate(rnn.layers()) for a in w if a is not None}
        self.layers: set[int] = set()
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for a in tree_leaves((args, kwargs)):
            if isinstance(a, Tensor) and a.untyped_storage().data_ptr() in self.layer_of:
                self.layers.add(self.layer_of[a.untyped_storage().data_ptr()])
        self.products += func.overloadpacket in PRODUCTS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
def test_a_layer_that_copies_does_no_work(layer_norm: bool, on_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: False)  # all products are torch's, and counted
    rnn = HMLSTM(INPUT, (8, 8, 8, 8), 4, layer_norm=layer_norm, on_copy=on_copy)
    state = rnn.step(torch.randn(1, INPUT)).state
    copies = 0
    for _ in range(40):
        z_before = state.z[0].bool().tolist()
        with Touched(rnn) as touched:
            step = rnn.step(torch.randn(1, INPUT), state)
        state = step.state
        changed = step.changed[0].tolist()
        copies += changed.count(False)
        assert touched.layers == {l for l, moved in enumerate(changed) if moved}
        # per layer that moves: U·h, V·h after a boundary, W·h at one below; its detector's U·h for a COPY to come is
        # NumPy's
        z_now = [True, *state.z[0].bool().tolist()]
        assert touched.products == sum(changed) + sum(z_before) + sum(z_now)
    assert copies > 20


def test_a_step_that_only_the_first_layer_takes_costs_two_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_layer, "by_einsum", lambda _: False)  # all products are torch's, and counted
    rnn = HMLSTM(INPUT, 8, 3)
    with torch.no_grad():
        for b in list(rnn.b)[:2]:
            b[-1] = -100  # no detector ever fires
    state = rnn.step(torch.randn(1, INPUT)).state
    with Touched(rnn) as touched:
        rnn.step(torch.randn(1, INPUT), state)
    assert (touched.products, touched.layers) == (2, {0})


def test_bad_input_is_named() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    with pytest.raises(InputError, match=r"^x must have shape \(B, 4\); got \(3, 2\)$"):
        rnn.step(torch.zeros(3, 2))
    with pytest.raises(InputError, match=r"^x must have shape \(B, 4\); got \(4,\); for one sequence, add"):
        rnn.step(torch.zeros(4))
    with pytest.raises(InputError, match=r"^state.z must have shape \(3, 2\); got \(2, 2\)$"):
        rnn.step(torch.zeros(3, 4), rnn.initial_state(3)._replace(z=torch.zeros(2, 2)))
    with pytest.raises(InputError, match=r"^x must be a tensor; got list$"):
        rnn.step([0.0] * 4)


@pytest.mark.parametrize(
    "change", ["another h", "h in place", "in inference mode", "weights in place", "other weights"]
)
def test_what_is_remembered_is_not_believed_after_a_change(change: str) -> None:
    """A middle layer that copies: its detector reads h and weights as they are now."""
    rnn = HMLSTM(INPUT, SIZES, 3, on_copy="evaluate").double().requires_grad_(False)
    copying = torch.zeros(1, 2, dtype=torch.float64)
    x = torch.randn(1, INPUT, dtype=torch.float64)
    with torch.inference_mode(change == "in inference mode"):
        state = rnn.step(x, None, torch.ones_like(copying)).state._replace(z=copying)
        state = rnn.step(x, state, copying).state
        if change == "in inference mode":
            state.h[1].add_(0.3)
    if change == "another h":
        state = state._replace(h=(state.h[0], state.h[1] + 0.3, state.h[2]))
    elif change == "h in place":
        state.h[1].add_(0.3)
    elif change == "weights in place":
        rnn.U[1].add_(0.3)
    elif change == "other weights":
        rnn.U[1] = torch.nn.Parameter(rnn.U[1] + 0.3, requires_grad=False)
    found = rnn.step(x, state, copying)
    assert not found.changed[:, 1].any()
    wanted = rnn.step(x, State(*state), copying)
    torch.testing.assert_close(found.probabilities, wanted.probabilities, rtol=0, atol=0)


class Scaled(torch.nn.Module):
    """Of a weight: a parametrization, by which it is computed anew whenever it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.k = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return self.k * weight


def test_what_is_remembered_of_a_computed_weight_is_not_believed() -> None:
    """Its memory is used again, so that another one lies at the same place."""
    copying = torch.zeros(1, 2, dtype=torch.float64)
    x = torch.randn(1, INPUT, dtype=torch.float64)
    for _ in range(20):
        rnn = HMLSTM(INPUT, (6, 64, 4), 3).double().requires_grad_(False)
        parametrize.register_parametrization(rnn.U, "1", Scaled())
        state = rnn.step(x, None, torch.ones_like(copying)).state._replace(z=copying)
        state = rnn.step(x, state, copying).state
        with torch.no_grad():
            rnn.U.parametrizations["1"][0].k.mul_(-50)  # type: ignore[index, union-attr, operator]
        found, wanted = (rnn.step(x, given, copying) for given in (state, state.detach()))
        torch.testing.assert_close(found.probabilities, wanted.probabilities, rtol=0, atol=0)


def test_a_copy_of_a_streamed_state() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    x = torch.randn(1, INPUT)
    state = rnn.step(x).state
    for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        torch.testing.assert_close(tuple(rnn.step(x, copied).state), tuple(rnn.step(x, state).state))


def test_a_streamed_state_has_the_parts_of_any_state() -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    h, c, z, pending = rnn.step(torch.randn(1, INPUT)).state
    assert (len(h), len(c), z.shape, pending) == (3, 3, (1, 2), None)


@pytest.mark.parametrize("value", [0.4, 0.7])
def test_real_boundaries_are_the_same_for_one_sequence_and_for_more(value: float) -> None:
    rnn = HMLSTM(INPUT, SIZES, 3)
    x = torch.randn(1, INPUT)
    one, two = (rnn.step(x.repeat(B, 1), None, torch.full((B, 2), value)).state for B in (1, 2))
    torch.testing.assert_close(one.z, two.z[:1])
    torch.testing.assert_close(one.h, tuple(h[:1] for h in two.h))
