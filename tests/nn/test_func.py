"""torch.func: gradients, forward derivatives and vmap of HMLSTM and its cell, as of any module."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

from hmrnn import HMLSTM
from hmrnn.nn.baselines.cells import LeakyRNN
from hmrnn.nn.baselines.recurrent import GRU, LSTM
from refusals import refused

T, B, INPUT = 7, 3, 4


def network(engine: str = "reference", **options: Any) -> HMLSTM:
    return HMLSTM(INPUT, (6, 5, 4), 3, layer_norm=True, engine=engine, **options).double()


def inputs() -> Tensor:
    return torch.randn(T, B, INPUT, dtype=torch.float64)


def loss(rnn: HMLSTM, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    out, state = functional_call(rnn, parameters, (x,))
    return sum((h.pow(2).sum() for h in out.hidden), start=out.boundaries.sum()) + state.c[1].sum()


def parameters(rnn: HMLSTM) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in rnn.named_parameters()}


def by_backward(rnn: HMLSTM, x: Tensor) -> dict[str, Tensor]:
    rnn.zero_grad()
    loss(rnn, {}, x).backward()
    return {name: p.grad for name, p in rnn.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("on_copy", ["hold", "evaluate"])
@pytest.mark.parametrize("boundary", ["step", "soft"])
def test_grad_is_backward(engine: str, on_copy: str, boundary: str) -> None:
    rnn, x = network(engine, on_copy=on_copy, boundary=boundary), inputs()
    got, want = grad(lambda p: loss(rnn, p, x))(parameters(rnn)), by_backward(rnn, x)
    assert set(want) <= set(got)
    for name, gradient in want.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [LSTM, partial(LSTM, layer_norm=True), GRU, LeakyRNN])
def test_grad_of_baselines_is_backward(kind: Any) -> None:
    rnn, x = kind(INPUT, 6, 2, dtype=torch.float64), inputs()
    got, want = grad(lambda p: loss(rnn, p, x))(parameters(rnn)), by_backward(rnn, x)
    assert set(want) == set(got)
    for name, gradient in want.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_vmap_gives_the_gradient_of_each_sequence(engine: str) -> None:
    rnn, x = network(engine), inputs()
    of_each = vmap(grad(lambda p, one: loss(rnn, p, one[:, None])), in_dims=(None, 1))(parameters(rnn), x)
    for n in range(B):
        for name, want in by_backward(rnn, x[:, n, None]).items():
            torch.testing.assert_close(of_each[name][n], want, rtol=1e-9, atol=1e-11)


def test_forward_derivatives_are_straight_through_too() -> None:
    """Along one direction: what the gradient says of it."""
    rnn, x, along = network(), inputs(), inputs()
    _, got = jvp(lambda x: loss(rnn, {}, x), (x,), (along,))
    torch.testing.assert_close(got, (grad(lambda x: loss(rnn, {}, x))(x) * along).sum())


def test_an_engine_with_a_backward_pass_of_its_own_says_so() -> None:
    rnn, x = network("native"), inputs()
    with refused("engine"):
        grad(lambda p: loss(rnn, p, x))(parameters(rnn))
    rnn.engine = "cuda"
    with refused("engine"):
        vmap(lambda x: rnn(x[:, None])[0].hidden[0], in_dims=1)(x)


class Top(torch.nn.Module):
    """The highest layer of a network, as a tensor."""

    def __init__(self, rnn: HMLSTM) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0].hidden[-1]


@pytest.mark.slow
def test_the_reference_is_one_graph() -> None:
    """For torch.export, which follows Python if it is strict, and for torch.compile, with its gradient."""
    top = Top(HMLSTM(INPUT, 5, 3, layer_norm=True, engine="reference").double())
    x, other = inputs()[:2], inputs()[2:4]
    for strict in (False, True):
        exported = torch.export.export(top, (x,), strict=strict).module()
        torch.testing.assert_close(exported(other), top(other))
    compiled = torch.compile(top, backend="aot_eager", fullgraph=True)
    wanted = torch.autograd.grad(top(x).sum(), [*top.parameters()], materialize_grads=True)
    found = torch.autograd.grad(compiled(x).sum(), [*top.parameters()], materialize_grads=True)
    torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit.trace:DeprecationWarning")
def test_auto_is_followed_by_trace() -> None:
    """By export and compile: test_torch_table.py."""
    top = Top(HMLSTM(INPUT, (5, 6), 2).double().requires_grad_(False))
    x, other = inputs(), inputs()
    torch.testing.assert_close(torch.jit.trace(top, (x,))(other), top(other))
    top.rnn.engine = "native"
    with refused():
        torch.jit.trace(top, (x,))


def test_compiled_with_boundaries_between_0_and_1() -> None:
    """Auto looks at them there, too, and takes the reference."""
    rnn, half = HMLSTM(INPUT, (6, 5, 4), 3).double(), torch.full((T, B, 2), 0.5, dtype=torch.float64)
    x = inputs()
    found, _ = torch.compile(rnn, backend="eager")(x, boundaries=half)
    torch.testing.assert_close(found.hidden, rnn(x, boundaries=half)[0].hidden)
