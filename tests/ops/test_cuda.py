"""The cuda engine on a GPU against the reference, in every type.

Most of the time Triton compiles: ``pytest -m gpu -n 8`` does so side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from against_reference import Case, Values, evaluate, expected, make, worst
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Options, choose_engine
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda.layer import Spec
from interpreted import poisoned

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
TOLERANCE = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 5e-2}
# Kernels are compiled for sizes and options, not for T and B: cases share them where they can.
LARGE = {"sizes": (512, 512, 512), "T": 63, "B": 7, "input_size": 128, "forced": "all", "straight_through": True}
LONG = {"sizes": (48, 32, 64), "T": 500, "B": 5, "input_size": 24, "forced": "all", "straight_through": True}
ODD = {"sizes": (130, 77), "T": 20, "B": 9, "input_size": 65, "forced": "all", "on_copy": "hold"}
NORM = {"layer_norm": True, "gain": 0.2}
SHAPES = [{}, {"T": 1}, {"B": 3}, {"T": 10, "B": 160}]
DROPOUT = {"dropout": True}
GIVEN: list[dict[str, Any]] = [
    *(LARGE | norm | shape for norm in ({}, NORM) for shape in SHAPES), LARGE | NORM | DROPOUT,
    LONG, LONG | NORM, ODD, ODD | {"T": 2}, ODD | DROPOUT, ODD | NORM | {"lengths": True, "symbols": 50},
    ODD | {"zoneout": "masks"}, ODD | NORM | {"zoneout": "share", "T": 2},
    {"sizes": (64, 48, 64, 48, 16), "T": 12, "B": 33, "input_size": 128, "forced": "all", "lengths": True},
    {"sizes": (200,), "T": 40, "B": 17, "input_size": 30},
]  # fmt: skip
CASES = [Case(**given) for given in GIVEN]
CELLS: list[dict[str, Any]] = [
    {"flush": False},
    {"flush": False, "top_down": "pending", "lengths": True},
    {"flush": False, "top_down": "always"},
    {"flush": False, "top_down": "none", "on_copy": "hold"},
    {"top_down": "always"},
    {"top_down": "none"},
    {"copy": False},
    {"copy": False, "flush": False, "top_down": "none"},
    {"hidden": 24},
    {"hidden": 24, "flush": False, "top_down": "pending", "lengths": True, "symbols": 30},
    {"hidden": 24, "dropout": True, "boundary": "gumbel", "on_copy": "hold"},
    {"boundary": "gumbel", "lengths": True},
    {"boundary": "reinforce", "on_copy": "hold"},
]
OF_THE_CELL = [
    Case(**{"sizes": (64, 48, 80), "T": 20, "B": 9, "input_size": 24, "forced": "all", "straight_through": True} | more)
    for norm in ({}, NORM)
    for more in (norm | cell for cell in CELLS)
]


def joined(values: Values) -> Values:
    """With D2 and d2, one affine map, as one: the gradient of d2 alone is one number, a sum that cancels."""
    pairs = {name: name.replace("D2", "d2") for name in values if "D2" in name}
    rest = {name: a for name, a in values.items() if name not in (*pairs, *pairs.values())}
    return rest | {weight: torch.cat([values[weight][0], values[bias]]) for weight, bias in pairs.items()}


@pytest.fixture
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if request.param == "tf32" else "ieee"
    yield request.param
    torch.backends.cuda.matmul.fp32_precision = before


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.forget()
    monkeypatch.setattr(Spec, "new", poisoned)


def kind(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def compare(case: Case, precision: str) -> None:
    """Launched, captured and replayed; every time with other inputs than just before.

    The straight-through gradient jumps where a detector leaves its linear range, |slope · s_z| <= 1. With the noise of
    bfloat16 or tf32 a few rows would lie on the other side than in float64, so there the detectors' weights are small
    enough to keep all of them inside.
    """
    if precision != "float32":
        case = dataclasses.replace(case, detector=0.05)
    problems = [make(case, kind(precision), "cuda", seed) for seed in range(2)]
    wanted = [joined(expected(given)) for given in problems]
    for call in (0, 1, 0, 1):
        error, name = worst(joined(evaluate(cuda.hmlstm, problems[call], kind(precision))), wanted[call])
        assert error < TOLERANCE[precision], f"{name}: {error}"


@pytest.mark.parametrize("precision", TOLERANCE, indirect=True)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_are_those_of_the_reference(case: Case, precision: str) -> None:
    compare(case, precision)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"], indirect=True)
@pytest.mark.parametrize("case", OF_THE_CELL, ids=str)
def test_options_of_the_cell(case: Case, precision: str) -> None:
    assert choose_engine("auto", torch.device("cuda"), Options(case.variant), kind(precision)) == "cuda"
    compare(case, precision)


@pytest.mark.parametrize("boundary", ["step", "sample", "soft"])
@pytest.mark.parametrize(("layer_norm", "on_copy"), [(False, "hold"), (True, "evaluate")])
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_free_boundaries(boundary: str, on_copy: str, layer_norm: bool, precision: str) -> None:
    """A boundary is discrete: a last bit can turn one, but with these seeds and this size none is that close."""
    case = Case((40, 30), 12, 4, 20, layer_norm, boundary, on_copy, detector=0.3)
    given = make(case, torch.float32, "cuda")
    error, name = worst(evaluate(cuda.hmlstm, given, torch.float32), expected(given))
    assert error < 1e-3, f"{name}: {error}"


def test_more_numbers_in_a_log_than_32_bits_can_count() -> None:
    """With a gradient all steps at once, without one in pieces: the same outputs; and the gradient at the far end."""
    T, B = 5500, 64
    rnn = HMLSTM(16, 512, 3, layer_norm=True).cuda()
    x = torch.randn(T, B, 16, device="cuda", requires_grad=True)
    assert T * B * 6144 > 2**31  # 4H for each of U, V and W, side by side
    state, forced = rnn.initial_state(B), (torch.rand(T, B, 2, device="cuda") < 0.5).float()
    options = dataclasses.replace(rnn.options(), straight_through=True)
    with torch.autocast("cuda", torch.bfloat16):
        whole = cuda.hmlstm(x, rnn.layers(), state, options, boundaries=forced)
        with torch.no_grad():
            pieces = cuda.hmlstm(x[:-20], rnn.layers(), state, options, boundaries=forced[:-20])
        last = x[-20:].detach().requires_grad_()
        end = cuda.hmlstm(last, rnn.layers(), pieces.state, options, boundaries=forced[-20:])
    (of_x,) = torch.autograd.grad(sum(h[-20:].float().square().sum() for h in whole.hidden), x)
    (of_last,) = torch.autograd.grad(sum(h.float().square().sum() for h in end.hidden), last)
    pairs = [(of_x[-20:], of_last)]
    for a, b, c in zip(whole.hidden, pieces.hidden, end.hidden):
        pairs += [(a[:-20], b), (a[-20:], c)]
    for a, b in pairs:
        assert (a.float() - b.float()).norm() < 0.05 * b.float().norm()
