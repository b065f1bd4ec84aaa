"""The cuda engine without products for rows that copy, in Triton's interpreter and on a GPU, against the reference."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from against_reference import Case, evaluate, expected, make, worst
from hmrnn import InputError
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Options, Variant, choose_engine
from hmrnn.ops.cuda import cache as cuda_cache
from hmrnn.ops.cuda import captures, room, rows
from hmrnn.ops.cuda import engine as cuda
from interpreted import SPEC, TOLERANCE, Clock, check, clocks, interpreted, small, with_rates
from refusals import refused

pytest.importorskip("triton", reason="Triton is not installed")


@interpreted
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(small(least=2, copy=st.just(True), hidden=st.just(0)), st.integers(0, 99))
def test_any_network_is_the_reference(case: Case, seed: int) -> None:
    check(case, cuda.hmlstm_rows, seed)


@interpreted
@pytest.mark.parametrize("layer_norm", [False, True])
def test_more_rows_and_columns_than_a_tile_has(layer_norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rows, "tile", lambda kind, spec, l: {"BM": 2, "BN": 4, "BK": 4, "num_warps": 1, "num_stages": 1}
    )
    monkeypatch.setattr(rows, "PROGRAMS", 3)
    monkeypatch.setattr(rows, "in_triton", lambda spec: True)
    check(Case(flush=False, T=1, B=5, sizes=(4, 3), forced="all", layer_norm=layer_norm), cuda.hmlstm_rows)


@interpreted
def test_without_a_gradient_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = make(Case(flush=False, T=3, B=2, sizes=(3, 4), forced="some"))
    monkeypatch.setattr(cuda, "STEPS_WITHOUT_GRADIENT", 2)
    with torch.inference_mode():
        got = evaluate(cuda.hmlstm_rows, given, torch.float32, gradients=False)
    error, name = worst(got, expected(given, gradients=False))
    assert error < TOLERANCE, f"{name}: {error}"


@interpreted
def test_rows_that_copy_have_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many events are logged as the reference has steps at which a layer moves."""
    plans: list[rows.RowsPlan] = []
    forward = rows.RowsPlan.forward
    monkeypatch.setattr(rows.RowsPlan, "forward", lambda plan: [plans.append(plan), forward(plan)])
    given = make(Case(flush=False, T=4, B=2, sizes=(3, 4), forced="all", top_down="none"))
    evaluate(cuda.hmlstm_rows, given, torch.float32)
    assert given.forced is not None
    for layer in plans[0].layers[1:]:
        moved = given.forced[..., layer.l - 1] == 1
        assert 0 < moved.sum() < moved.numel()
        assert layer.counts[:, 0].tolist() == moved.sum(1).tolist()
        assert layer.base[-1] == moved.sum()
        written = ~layer.products.isnan().all(1)
        assert written.sum() == given.case.B + moved.sum()


WITHOUT_ROOM = [
    Case(flush=False, T=3, B=2, layer_norm=True, forced="all", on_copy="hold", sizes=(3, 4)),
    Case(flush=False, T=3, B=3, top_down="pending", forced="some", straight_through=True, sizes=(3, 4)),
]


@interpreted
@pytest.mark.parametrize("case", WITHOUT_ROOM, ids=str)
def test_logs_with_too_little_room_are_enlarged(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call has room for one event and runs again before its backward pass; later ones have more."""
    cuda.forget()
    plans: list[rows.RowsPlan] = []
    forward = rows.RowsPlan.forward
    monkeypatch.setattr(rows.RowsPlan, "forward", lambda plan: [plans.append(plan), forward(plan)])
    check(case, with_rates(0.0))
    small, large = plans
    assert small.spec.room == (1,)
    (events,) = large.events().tolist()
    assert 1 < events <= large.spec.room[0] < case.T * case.B
    later = cuda_cache.on(torch.device("cpu")).lend(dataclasses.replace(small.spec, batch=100 * case.B), moving=(0.0,))
    assert 100 * events < later.plan.spec.room[0] < 100 * case.T * case.B
    cuda.forget()


@interpreted
def test_a_second_backward_pass_finds_the_outputs_again() -> None:
    """The first one has overwritten them with their gradients."""
    torch.manual_seed(0)
    rnn = HMLSTM(3, 4, 2, flush=False)
    x, forced = torch.randn(2, 1, 3), torch.ones(2, 1, 1)
    out = cuda.hmlstm_rows(x, rnn.layers(), rnn.initial_state(1), rnn.options(), boundaries=forced)
    loss = out.hidden[1].sum() + out.hidden[0].square().sum()
    first, second = (torch.autograd.grad(loss, list(rnn.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) and a.abs().sum() > 0 for a, b in zip(first, second))


def test_at_word_rates_it_takes_less_memory_than_the_dense_engine() -> None:
    """Buffers, outputs and gradients of a training step of 512×1024, counted; none of the memory is touched."""
    T, B, H, half = 100, 512, 1024, torch.bfloat16
    spec = dataclasses.replace(
        SPEC, steps=T, batch=B, sizes=(H, H, H), input_size=128, dtype=half, forced=True, straight_through=True,
        variant=Variant(flush=False), device=torch.device("cpu"),
    )  # fmt: skip
    moving = Variant(flush=False).moving((0.19, 0.045))
    found = [
        captures.new_plan(spec).nbytes,
        captures.new_plan(dataclasses.replace(spec, rows=True, room=room.size(moving, T * B))).nbytes,
    ]
    others = 3 * T * B * H * half.itemsize + 4 * (7 * 4 * H * H + 4 * H * 128)
    dense, compact = ((nbytes + others) / 2**20 for nbytes in found)
    assert 2700 < dense < 2800
    assert compact < 0.7 * dense


@interpreted
def test_one_layer_is_run_densely() -> None:
    check(Case(sizes=(3,), T=1), cuda.hmlstm_rows)


def test_what_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def declined(**options: object) -> bool:
        try:
            return choose_engine("cuda-rows", torch.device("cpu"), Options(Variant(**options))) != "cuda-rows"  # type: ignore[arg-type]
        except InputError:
            return True

    assert declined()
    monkeypatch.setattr(cuda, "why_not", lambda device, dtype: None)
    assert not declined()
    assert declined(copy=False)
    assert declined(detector_hidden=3)
    with refused():
        evaluate(cuda.hmlstm_rows, make(Case(copy=False, T=1)), torch.float32)


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_launches_wait_for_what_they_read_and_for_readers_of_what_they_overwrite(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = clocks(monkeypatch)
    streams = rows.Streams([Clock() for _ in range(rows.Streams.number(layers) - 1)])  # type: ignore[misc]
    T, now = 4, [("", 0, 0)]
    found: dict[tuple[str, int, int], set[Any]] = {}

    def launch(what: str) -> None:
        name = (what, *now[0][1:])
        found[name] = set(here[-1].before)
        here[-1].before.add(name)

    cell = {(1,): lambda t, **arguments: launch("cell")}
    plan = rows.RowsPlan.__new__(rows.RowsPlan)
    plan.lanes, plan.spec = streams, SimpleNamespace(batch=1)  # type: ignore[assignment]
    plan.kernels = SimpleNamespace(cell_forward=cell)  # type: ignore[assignment]
    plan.kernels_backward = SimpleNamespace(cell_backward=cell)  # type: ignore[assignment]
    plan.kernels_rows = SimpleNamespace(detect={(1,): lambda t: launch("z")})  # type: ignore[assignment]
    plan._detects = [{}] * (layers - 1)
    monkeypatch.setattr(plan, "_multiply_below", lambda t, layer: launch("W"))
    monkeypatch.setattr(plan, "_multiply_new", lambda name, t, layer: launch(name))
    monkeypatch.setattr(plan, "_multiply_back", lambda name, t, layer: launch(name))
    for run, way in ((plan._forward_stage, 1), (plan._backward_stage, -1)):
        found.clear()
        with streams.forked():
            for t, l in [(t, l) for t in range(T)[::way] for l in range(layers)[::way]]:
                now[0] = ("", t, l)
                run(t, SimpleNamespace(l=l, top=l == layers - 1, reads="UVW"), {})  # type: ignore[arg-type]
        for what, t, l in found:
            # W of the next step may overwrite what this step's cell reads, and so on
            if way == 1:
                needed = {
                    "z": [("cell", t, l - 1), ("cell", t - 1, l), ("cell", t - 1, l + 1), ("z", t, l - 1)]
                    + [("z", t - 1, l), ("z", t - 1, l + 1)],
                    "W": [("cell", t, l - 1), ("z", t, l - 1), ("cell", t - 1, l)],
                    "cell": [("W", t, l), ("U", t - 1, l), ("V", t - 1, l + 1), ("W", t - 1, l + 1), ("z", t, l - 1)]
                    + [("z", t - 1, l)],
                    "V": [("cell", t, l), ("cell", t, l - 1)],
                    "U": [("cell", t, l)],
                }[what]
            else:
                needed = {
                    "cell": [("W", t, l + 1), ("V", t + 1, l - 1), ("U", t + 1, l), ("cell", t + 1, l - 1)],
                    "W": [("cell", t, l), ("cell", t + 1, l - 1)],
                    "V": [("cell", t, l), ("cell", t, l + 1)],
                    "U": [("cell", t, l)],
                }[what]
            assert found.keys() & set(needed) <= found[what, t, l], (way, what, t, l)
        assert len(found) == T * (layers * 2 + (layers - 1) * (3 if way == 1 else 2))
