"""The options of the cell on the cuda engine, in Triton's interpreter and on a GPU, against the reference."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from against_reference import Case, Values, evaluate, expected, make, worst
from hmrnn.ops import Options, choose_engine
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda.layer import Spec
from interpreted import TOLERANCE, check, interpreted, poisoned

pytest.importorskip("triton", reason="Triton is not installed")
CASES = [
    Case(flush=False, T=3, B=1),
    Case(flush=False, top_down="pending", T=4, B=2, sizes=(3, 4, 2), forced="some", straight_through=True),
    Case(flush=False, top_down="pending", boundary="soft", detector=0.3, on_copy="hold", T=3, B=1, sizes=(3, 4, 2)),
    Case(flush=False, top_down="always", T=3, B=2, dropout=True),
    Case(flush=False, top_down="always", layer_norm=True, on_copy="hold", T=3, B=1, zoneout="masks"),
    Case(flush=False, top_down="none", T=3, B=1, on_copy="hold", forced="some"),
    Case(flush=False, top_down="none", layer_norm=True, T=2, B=2, lengths=True, sizes=(3, 4, 2)),
    Case(top_down="always", T=3, B=1, lengths=True, sizes=(3, 5)),
    Case(top_down="none", layer_norm=True, T=2, B=1, dropout=True, symbols=4),
    Case(copy=False, layer_norm=True, T=2, B=1, on_copy="hold", forced="some"),
    Case(copy=False, flush=False, top_down="always", T=2, B=1, lengths=True),
    Case(copy=False, flush=False, top_down="none", layer_norm=True, T=2, B=1, dropout=True, sizes=(3, 5)),
    Case(copy=False, flush=False, top_down="pending", boundary="soft", detector=0.3, T=2, B=1),
]

HIDDEN = [
    Case(T=3, B=1, layer_norm=True, on_copy="hold", forced="some", straight_through=True),
    Case(T=3, B=2, lengths=True, symbols=4, sizes=(3, 5), boundary="gumbel", detector=0.3),
    Case(T=2, B=1, sizes=(3, 2, 4, 3), dropout=True, boundary="reinforce", detector=0.3),
    Case(T=2, B=1, dropout=True, layer_norm=True, zoneout="masks"),
    Case(T=3, B=2, flush=False, top_down="pending", lengths=True, sizes=(3, 4, 2)),
    Case(T=3, B=1, flush=False, top_down="pending", layer_norm=True, symbols=4, boundary="sample", detector=0.3),
    Case(T=2, B=1, flush=False, top_down="always", layer_norm=True, boundary="soft", detector=0.1),
    Case(T=2, B=1, top_down="none", copy=False, on_copy="hold"),
    Case(T=1, B=1, sizes=(4,)),  # a single layer has no detector
]
CASES += [dataclasses.replace(case, hidden=5) for case in HIDDEN]
REPEATED = [
    Case(flush=False, layer_norm=True, on_copy="hold", T=3, B=1, sizes=(3, 5, 4)),
    Case(flush=False, top_down="pending", layer_norm=True, T=4, B=2, sizes=(3, 4, 2), lengths=True, symbols=4),
    Case(top_down="always", layer_norm=True, boundary="soft", detector=0.3, T=2, B=1),
    Case(top_down="none", T=2, B=1, sizes=(3, 5)),
    Case(copy=False, T=3, B=1, dropout=True),
    Case(T=2, hidden=5),
]
"""Whose options are in CASES and in those of test_kernels.py two by two."""


@interpreted
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in REPEATED)], ids=str)
def test_outputs_and_gradients_are_those_of_the_reference(case: Case) -> None:
    check(case)


@interpreted
def test_pending_gates_without_a_gradient_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = make(Case(flush=False, top_down="pending", T=3, sizes=(3, 4, 2)))
    want = expected(given, gradients=False)
    monkeypatch.setattr(cuda, "STEPS_WITHOUT_GRADIENT", 2)
    with torch.inference_mode():
        error, name = worst(evaluate(cuda.hmlstm, given, torch.float32, gradients=False), want)
    assert error < TOLERANCE, f"{name}: {error}"


@interpreted
def test_a_hidden_layer_of_detectors_in_bfloat16_and_without_a_gradient() -> None:
    given = make(Case(T=2, B=1, hidden=5, forced="all"), torch.bfloat16)
    error, name = worst(evaluate(cuda.hmlstm, given, torch.bfloat16), want := expected(given))
    assert error < 5e-2, f"{name}: {error}"
    got = evaluate(cuda.hmlstm, given, torch.float32, gradients=False)
    assert worst(got, {name: want[name] for name in got})[0] < TOLERANCE


def test_graphs_are_kept_for_one_cell_alone() -> None:
    spec = Spec(
        steps=3, batch=2, sizes=(4, 4, 4), input_size=3, symbols=0, norm=False, dtype=torch.float32, boundary="step",
        on_copy="evaluate", forced=False, straight_through=False, noise=False, zoneout=0.0, masks=False, seen=False,
        lengths=False, training=True, input_gradient=False, precision="", device=torch.device("cuda", 0),
    )  # fmt: skip
    changes = [{"flush": False}, {"gate": "pending"}, {"gate": "always"}, {"gate": "none"}, {"copy": False}]
    changes += [{"hidden": 5}]
    assert len({spec, *(dataclasses.replace(spec, **change) for change in changes)}) == 7


CELLS = [
    {"flush": False},
    {"flush": False, "top_down": "pending", "lengths": True},
    {"flush": False, "top_down": "always"},
    {"flush": False, "top_down": "none", "on_copy": "hold"},
    {"top_down": "always"},
    {"top_down": "none"},
    {"copy": False},
    {"copy": False, "flush": False, "top_down": "none"},
]
ESTIMATORS = [
    {"hidden": 24},
    {"hidden": 24, "flush": False, "top_down": "pending", "lengths": True, "symbols": 30},
    {"hidden": 24, "dropout": True, "boundary": "gumbel", "on_copy": "hold"},
    {"boundary": "gumbel", "lengths": True},
    {"boundary": "reinforce", "on_copy": "hold"},
]
LARGER = Case(sizes=(64, 48, 80), T=20, B=9, input_size=24, forced="all", straight_through=True)
ON_A_GPU = [dataclasses.replace(LARGER, **cell) for cell in CELLS + ESTIMATORS]
ON_A_GPU += [dataclasses.replace(case, layer_norm=True, gain=0.2) for case in ON_A_GPU]


def joined(values: Values) -> Values:
    """With D2 and d2, one affine map, as one: the gradient of d2 alone is one number, a sum that cancels."""
    pairs = {name: name.replace("D2", "d2") for name in values if "D2" in name}
    rest = {name: a for name, a in values.items() if name not in (*pairs, *pairs.values())}
    return rest | {weight: torch.cat([values[weight][0], values[bias]]) for weight, bias in pairs.items()}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("case", ON_A_GPU, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)], ids=str)
@pytest.mark.usefixtures("ieee")
def test_on_a_gpu(case: Case, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched, captured and replayed, every time with other inputs than just before."""
    monkeypatch.setattr(Spec, "new", poisoned)
    cuda.forget()
    if dtype != torch.float32:  # keeps every detector in its linear range, see test_cuda.py
        case = dataclasses.replace(case, detector=0.05)
    assert choose_engine("auto", torch.device("cuda"), Options(flush=case.flush), dtype) == "cuda"
    problems = [make(case, dtype, "cuda", seed) for seed in range(2)]
    wanted = [expected(given) for given in problems]
    for call in (0, 1, 0):
        error, name = worst(joined(evaluate(cuda.hmlstm, problems[call], dtype)), joined(wanted[call]))
        assert error < tolerance, f"{name}: {error}"
