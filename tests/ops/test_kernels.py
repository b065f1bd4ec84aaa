"""The cuda engine in Triton's interpreter: the kernels and the order of their launches, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from against_reference import Case, evaluate, expected, make, worst
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Options, reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda import gradients as cuda_gradients
from hmrnn.ops.cuda.layer import Spec
from interpreted import TOLERANCE, Clock, check, clocks, interpreted, small
from refusals import refused

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.mark.long
@interpreted
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(small(), st.integers(0, 99))
def test_any_network_is_the_reference(case: Case, seed: int) -> None:
    """With a gradient, and without one in pieces."""
    check(case, seed=seed)
    given = make(case, seed=seed)
    want = expected(given, gradients=False)
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(cuda, "STEPS_WITHOUT_GRADIENT", 2)
        error, name = worst(evaluate(cuda.hmlstm, given, torch.float32, gradients=False), want)
    assert error < TOLERANCE, f"in pieces {name}: {error}"


@interpreted
@pytest.mark.parametrize("layer_norm", [False, True])
def test_products_in_fewer_parts(layer_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in large batches."""
    monkeypatch.setattr(Spec, "parts", 2)
    check(Case(T=2, B=1, layer_norm=layer_norm))


@interpreted
@pytest.mark.parametrize("layer_norm", [False, True])
def test_sums_over_more_rows_and_columns_than_a_tile_has(layer_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spec, "chunks", 2)
    monkeypatch.setitem(cuda_gradients.TILE, "ROWS", 2)
    monkeypatch.setitem(cuda_gradients.TILE, "BLOCK", 8)
    check(Case(sizes=(3, 5), T=2, B=2, layer_norm=layer_norm))


@interpreted
@pytest.mark.parametrize("more", [{}, {"layer_norm": True}, {"hidden": 5}], ids=str)
def test_bfloat16_operands(more: dict[str, Any]) -> None:
    given = make(Case(forced="all", sizes=(20, 17), T=2, B=1, **more), torch.bfloat16)
    got = evaluate(cuda.hmlstm, given, torch.bfloat16)
    error, name = worst(got, expected(given))
    assert error < 5e-2, f"{name}: {error}"
    float32 = {"boundaries", "probabilities", "state.z", *(f"state.c.{l}" for l in range(2))}
    assert {name for name in got if got[name].dtype == torch.float32} == float32


@interpreted
def test_autocast_gives_bfloat16_hidden_and_float32_gradients() -> None:
    given = make(Case(forced="all", T=2, B=1, sizes=(5, 3)), torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        got = evaluate(cuda.hmlstm, given, torch.float32)
    assert got["hidden.0"].dtype == torch.bfloat16
    assert got["gradient of U.0"].dtype == torch.float32
    error, name = worst(got, expected(given))
    assert error < 5e-2, f"{name}: {error}"


def network(layer_norm: bool = False) -> tuple[HMLSTM, Tensor]:
    torch.manual_seed(0)
    return HMLSTM(3, (4, 3), 2, layer_norm=layer_norm), torch.randn(2, 1, 3)


def hidden(rnn: HMLSTM, x: Tensor, engine: str) -> tuple[Tensor, ...]:
    run = cuda.hmlstm if engine == "cuda" else reference.hmlstm
    return run(x, rnn.layers(), rnn.initial_state(x.shape[1]), rnn.options()).hidden


@interpreted
def test_only_what_is_asked_for() -> None:
    """One output used, and gradients for the input and one matrix alone."""
    grads = []
    for engine in ("reference", "cuda"):
        rnn, x = network()
        rnn.requires_grad_(False).V[0].requires_grad_()
        x.requires_grad_()
        hidden(rnn, x, engine)[1].square().sum().backward()
        assert rnn.U[0].grad is None
        grads.append((x.grad, rnn.V[0].grad))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


@interpreted
def test_calls_in_any_order() -> None:
    rnn, x = network(layer_norm=True)
    parameters = list(rnn.parameters())
    wanted = []
    for scale in (1, -2):
        loss = sum(h.square().sum() for h in hidden(rnn, scale * x, "reference"))
        wanted.append(torch.autograd.grad(loss, parameters))
    losses = [sum(h.square().sum() for h in hidden(rnn, scale * x, "cuda")) for scale in (1, -2)]
    hidden(rnn, x, "cuda")  # never followed by a backward pass
    for i in (0, 1, 0):
        for a, b in zip(torch.autograd.grad(losses[i], parameters, retain_graph=True), wanted[i]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    torch.autograd.grad(losses[0], parameters)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(losses[0], parameters)


@interpreted
def test_weights_may_change_before_the_backward_pass() -> None:
    """As the engine keeps what it multiplied with; the reference has torch complain."""
    rnn, x = network()
    wanted = torch.autograd.grad(hidden(rnn, x, "reference")[1].sum(), rnn.U[0])[0]
    loss = hidden(rnn, x, "cuda")[1].sum()
    with torch.no_grad():
        rnn.U[0].zero_()
    torch.testing.assert_close(torch.autograd.grad(loss, rnn.U[0])[0], wanted, rtol=1e-4, atol=1e-6)


@interpreted
def test_a_second_derivative_is_refused() -> None:
    rnn, x = network()
    with refused():
        torch.autograd.grad(hidden(rnn, x, "cuda")[0].sum(), rnn.U[0], create_graph=True)


@interpreted
def test_under_compile() -> None:
    rnn, x = network()
    compiled = torch.compile(lambda x: sum(h.sum() for h in hidden(rnn, 2 * x, "cuda")), backend="eager")
    torch.testing.assert_close(compiled(x), sum(h.sum() for h in hidden(rnn, 2 * x, "reference")))


@interpreted
def test_a_slope_that_wants_a_gradient_is_refused() -> None:
    rnn, x = network()
    options = Options(slope=torch.ones((), requires_grad=True))
    with refused():
        cuda.hmlstm(x, rnn.layers(), rnn.initial_state(1), options)


@pytest.mark.parametrize("layers", range(1, 7))
@pytest.mark.parametrize("way", [1, -1])
def test_lanes_keep_the_order(layers: int, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards and, with time and layers turned round, backwards: a stage follows the three stages it needs."""
    from hmrnn.ops.cuda.plan import Lanes

    here = clocks(monkeypatch)
    count = (layers + 1) // 2
    lanes = Lanes([Clock() for _ in range(count - 1)], Clock())  # type: ignore[misc, arg-type]
    stages = [(t, l) for t in range(5)[::way] for l in range(layers)[::way]]
    with lanes.forked():
        with lanes.background():
            here[-1].before.add(("apart",))
        for t, l in stages:
            with lanes.stage(l):
                needed = {(t, l - way), (t - way, l), (t - way, l + way)} & set(stages)
                assert needed <= here[-1].before
                if layers == 3 and (l, way) in ((0, 1), (2, -1)):  # the first and the third layer run side by side
                    assert (t - way, 2 - l) not in here[-1].before
                assert ("apart",) not in here[-1].before
                here[-1].before.add((t, l))
    assert here[-1].before == {*stages, ("apart",)}
