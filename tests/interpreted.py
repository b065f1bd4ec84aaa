"""The cuda engine in Triton's interpreter, on the CPU: what the tests of its kernels share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from against_reference import Case, Engine, cases, evaluate, expected, make, worst
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


def small(least: int = 1, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    """Networks of ``least`` layers or more that the interpreter runs in a second; their boundaries are not close."""
    sizes = st.lists(st.sampled_from([2, 3, 4, 17]), min_size=least, max_size=3 if least > 1 else 4).map(tuple)
    few = {"T": st.sampled_from([1, 2, 3]), "B": st.sampled_from([1, 2]), "symbols": st.sampled_from([0, 0, 4])}
    return cases(sizes=sizes, input_size=st.just(3), detector=st.just(0.3), **few | others)


def check(case: Case, engine: Engine = cuda.hmlstm, seed: int = 0) -> None:
    """Outputs, final state and every gradient are those of the reference."""
    given = make(case, seed=seed)
    error, name = worst(evaluate(engine, given, torch.float32), expected(given))
    assert error < TOLERANCE, f"{name}: {error}"


def poisoned(
    spec: Spec, *shape: int, dtype: torch.dtype | None = None, new: Callable[..., Tensor] = Spec.new
) -> Tensor:
    """A buffer in which everything that is not written is noticed."""
    made = new(spec, *shape, dtype=dtype)
    return made.fill_(torch.nan if made.is_floating_point() else min(10**6, torch.iinfo(made.dtype).max))


class Clock:
    """Stands in for a stream or an event of CUDA, and remembers what has happened before it."""

    def __init__(self) -> None:
        self.before: set[tuple[object, ...]] = set()

    def wait_stream(self, other: Clock) -> None:
        self.before |= other.before

    wait_event = wait_stream

    def record(self, stream: Clock | None = None) -> None:
        self.before |= (stream or torch.cuda.current_stream()).before  # type: ignore[union-attr]


def clocks(monkeypatch: pytest.MonkeyPatch) -> list[Clock]:
    """The streams that are current, one within the other, in place of those of CUDA."""
    here = [Clock()]

    @contextlib.contextmanager
    def stream(chosen: Clock) -> Iterator[None]:
        here.append(chosen)
        yield
        here.pop()

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: here[-1])
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    return here
