"""The cuda engine in Triton's interpreter: the kernels and the order of their launches, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from against_reference import Case, evaluate, expected, make, worst
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda import gradients as cuda_gradients
from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.cuda.plan import Lanes
from interpreted import TOLERANCE, Clock, check, clocks, interpreted, small

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
def test_fewer_parts_and_more_rows_and_columns_than_a_tile_has(
    layer_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in large batches."""
    monkeypatch.setattr(Spec, "parts", 2)
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


@pytest.mark.parametrize("layers", range(1, 7))
@pytest.mark.parametrize("way", [1, -1])
def test_lanes_keep_the_order(layers: int, way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards and, with time and layers turned round, backwards: a stage follows the three stages it needs."""
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
