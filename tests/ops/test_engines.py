"""Which engine runs, and why one does not: machines of every kind, none of which has to be there."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from hmrnn import HMLSTM, InputError
from hmrnn.ops import Options, Variant, choose_engine, reference
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.native import library
from refusals import refused

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda, "_triton_is_installed", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which the cuda engine can run."""
    usable(monkeypatch)
    return monkeypatch


def test_auto_takes_the_fastest_that_can_run(h200: pytest.MonkeyPatch) -> None:
    soft = Options(Variant("soft"))
    assert choose_engine("auto", GPU, Options()) == "cuda"
    assert choose_engine("auto", GPU, soft, torch.bfloat16) == "cuda"
    assert choose_engine("auto", GPU, Options(), torch.float64) == "reference"
    assert choose_engine("auto", CPU, Options(), torch.float64) == "native"
    assert choose_engine("auto", CPU, soft) == "reference"
    h200.setattr(cuda, "_triton_is_installed", lambda: False)
    assert choose_engine("auto", GPU, Options()) == "reference"


def test_without_the_library_auto_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "why_not", lambda: "HMRNN_NATIVE is off")
    assert choose_engine("auto", CPU, Options()) == "reference"
    assert cannot(CPU, torch.float64, "native")


def test_under_autocast_its_type_counts(h200: pytest.MonkeyPatch) -> None:
    h200.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    h200.setattr(torch, "get_autocast_dtype", lambda kind: torch.float16)
    assert choose_engine("auto", GPU, Options()) == "reference"
    assert cannot(GPU, torch.float32)
    assert choose_engine("auto", CPU, Options()) == "native"
    h200.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    assert choose_engine("auto", GPU, Options(), torch.float64) == "cuda"


def cannot(device: torch.device, dtype: torch.dtype, engine: str = "cuda", boundary: str = "step") -> bool:
    """Whether an engine that is asked for cannot run; the error names it."""
    try:
        choose_engine(engine, device, Options(Variant(boundary)), dtype)  # type: ignore[arg-type]
    except InputError as error:
        return engine in str(error)
    return False


def test_one_that_is_asked_for_runs_or_is_refused(h200: pytest.MonkeyPatch) -> None:
    assert choose_engine("cuda", GPU, Options()) == "cuda"
    assert choose_engine("reference", CPU, Options()) == "reference"
    with refused("engine"):
        choose_engine("fastest", CPU, Options())
    assert cannot(CPU, torch.float32)
    assert cannot(GPU, torch.float64)
    for given in (
        (CPU, torch.float32, "native", "soft"),
        (CPU, torch.bfloat16, "native"),
        (GPU, torch.float32, "native"),
    ):
        assert cannot(*given)
    for change in (
        lambda: h200.setenv("TRITON_INTERPRET", "1"),
        lambda: h200.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5)),
        lambda: h200.setattr(cuda, "_triton_is_installed", lambda: False),
        lambda: h200.setattr(torch.version, "cuda", None),
    ):
        assert not cannot(GPU, torch.float32)
        change()
        assert cannot(GPU, torch.float32)
        h200.undo()
        usable(h200)


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
