"""Which engine runs, and why one does not: machines of every kind, none of which has to be there."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hmrnn import HMLSTM
from hmrnn.ops import Options, Variant, choose_engine, reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.native import library
from refusals import refused

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which the cuda engine can run."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda, "_triton_is_installed", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return monkeypatch


def autocast(machine: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    machine.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    machine.setattr(torch, "get_autocast_dtype", lambda kind: dtype)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "": lambda machine: None,
    "no Triton": lambda machine: machine.setattr(cuda, "_triton_is_installed", lambda: False),
    "Triton's interpreter": lambda machine: machine.setenv("TRITON_INTERPRET", "1"),
    "an old GPU": lambda machine: machine.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5)),
    "no CUDA": lambda machine: machine.setattr(torch.version, "cuda", None),
    "no library": lambda machine: machine.setattr(library, "why_not", lambda: "HMRNN_NATIVE is off"),
    "autocast to float16": lambda machine: autocast(machine, torch.float16),
    "autocast to bfloat16": lambda machine: autocast(machine, torch.bfloat16),
}


@pytest.mark.parametrize(
    ("change", "device", "dtype", "boundary", "fastest"),
    [
        ("", GPU, torch.float32, "step", "cuda"),
        ("", GPU, torch.bfloat16, "soft", "cuda"),
        ("", GPU, torch.float64, "step", "reference"),
        ("", CPU, torch.float32, "step", "native"),
        ("", CPU, torch.float64, "step", "native"),
        ("", CPU, torch.bfloat16, "step", "reference"),
        ("", CPU, torch.float32, "soft", "reference"),
        ("no library", CPU, torch.float32, "step", "reference"),
        ("autocast to float16", GPU, torch.float32, "step", "reference"),
        ("autocast to float16", CPU, torch.float32, "step", "native"),
        ("autocast to bfloat16", GPU, torch.float64, "step", "cuda"),
        *((change, GPU, torch.float32, "step", "reference") for change in list(CHANGES)[1:5]),
    ],
)
def test_auto_takes_the_fastest_that_can_run_and_what_cannot_is_refused(
    change: str, device: torch.device, dtype: torch.dtype, boundary: Any, fastest: str, h200: pytest.MonkeyPatch
) -> None:
    CHANGES[change](h200)
    given = device, Options(Variant(boundary)), dtype
    assert choose_engine("auto", *given) == fastest
    assert choose_engine("reference", *given) == "reference"
    for engine in ("cuda", "native", "fastest"):
        with contextlib.nullcontext() if engine == fastest else refused("engine"):
            assert choose_engine(engine, *given) == engine


def test_whether_triton_is_installed_is_asked_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (None, object()):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, found=found: found)
        assert cuda._triton_is_installed.__wrapped__() == (found is not None)


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("what", ["boundaries", "state.z"])
def test_auto_takes_the_reference_for_boundaries_between_0_and_1(B: int, gradient: bool, what: str) -> None:
    rnn, x = HMLSTM(3, 4, 3), torch.randn(6, B, 3)
    state = rnn.initial_state(B)
    state = state._replace(z=torch.rand(B, 2)) if what == "state.z" else state
    boundaries = torch.rand(6, B, 2) if what == "boundaries" else None
    with torch.set_grad_enabled(gradient):
        got = rnn(x, state, boundaries=boundaries)[0]
        rnn.engine = "reference"
        want = rnn(x, state, boundaries=boundaries)[0]
        assert torch.equal(got.hidden[2], want.hidden[2])
        rnn.engine = "native"
        with refused():
            rnn(x, state, boundaries=boundaries)


def test_boundaries_in_the_padding_do_not_make_it_take_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "hmlstm", None)
    boundaries = torch.tensor([0.0, torch.nan, 0.3, 0.7]).view(4, 1, 1).expand(4, 2, 1)
    HMLSTM(3, 4, 2)(torch.randn(4, 2, 3), lengths=[2, 1], boundaries=boundaries)


def test_a_module_shows_what_it_takes_and_refuses_when_it_is_called() -> None:
    rnn, x = HMLSTM(3, 4, 2), torch.zeros(2, 1, 3)
    assert repr(rnn).endswith("engine='auto' (native))")
    for slow in (HMLSTM(3, 4, 2, boundary="soft"), HMLSTM(3, 4, 2, dtype=torch.bfloat16)):
        assert "engine='auto' (reference" in repr(slow)
    assert repr(HMLSTM(3, 4, 2, device="meta")).endswith("engine='auto' (reference))")
    assert repr(HMLSTM(3, 4, 2, engine="native")).endswith("engine='native')")
    rnn = HMLSTM(3, 4, 2, engine="cuda")
    with refused():
        rnn(x)
