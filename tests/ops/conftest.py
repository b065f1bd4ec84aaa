"""Triton's interpreter as a fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hmrnn.ops.cuda import engine
from hmrnn.ops.cuda.layer import Spec
from interpreted import poisoned


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the CPU, NaN in every buffer not yet written, and Triton's functions redirected once, not at every call."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the kernels are compiled for a GPU: run with -m 'not gpu'")
    from triton.runtime import interpreter as triton

    from hmrnn.ops.cuda import kernels

    monkeypatch.setattr(engine, "why_not", lambda device, dtype: None)
    monkeypatch.setattr(Spec, "new", poisoned)
    scopes = [triton._patch_lang(function.fn) for function in (kernels.cell_forward, triton.tl.sum)]
    monkeypatch.setattr(triton, "_patch_lang", lambda fn: type(scopes[0])())
    # Triton 3.6's own takes int() of an array (1,), which NumPy 2.4 refuses; later ones do as here
    scopes[0].set_attr(triton.tl.tensor, "__index__", lambda self: self.handle.data.item())
    yield
    for scope in reversed(scopes):
        scope.restore()
