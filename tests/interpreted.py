"""The cuda engine in Triton's interpreter, on the CPU: what the tests of its kernels share."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from against_reference import Case, Engine, evaluate, expected, make, worst
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda.layer import Spec
from hmrnn.ops.interface import PAPER

interpreted = pytest.mark.usefixtures("interpreter")
SPEC = Spec(
    steps=3, batch=2, sizes=(4, 4, 4), input_size=3, symbols=0, norm=False, dtype=torch.float32, variant=PAPER,
    forced=False, straight_through=False, noise=False, zoneout=0.0, masks=False, seen=False,
    lengths=False, training=True, input_gradient=False, precision="", device=torch.device("cuda", 0),
)  # fmt: skip
TOLERANCE = 2e-5  # float32 against float64, ‖difference‖ / ‖expected‖


def check(case: Case, engine: Engine = cuda.hmlstm) -> None:
    """Outputs, final state and every gradient are those of the reference."""
    given = make(case)
    error, name = worst(evaluate(engine, given, torch.float32), expected(given))
    assert error < TOLERANCE, f"{name}: {error}"


def poisoned(spec: Spec, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """A buffer in which everything that is not written is noticed."""
    dtype = dtype or spec.dtype
    value = float("nan") if dtype.is_floating_point else min(10**6, torch.iinfo(dtype).max)
    return torch.full(shape, value, dtype=dtype, device=spec.device)


def with_rates(*rates: float) -> Engine:
    return lambda x, weights, state, options, **given: cuda.hmlstm_rows(
        x, weights, state, dataclasses.replace(options, rates=rates), **given
    )
