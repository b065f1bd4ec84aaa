"""Triton's interpreter as a fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from hmrnn.ops.cuda import engine
from hmrnn.ops.cuda.layer import Spec
from interpreted import poisoned

_types: dict[str, Any] = {}


def _known(kind: Any, find: Any) -> Any:
    """The type in NumPy of one in Triton."""
    if kind.name not in _types:
        _types[kind.name] = find(kind)
    return _types[kind.name]


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the CPU, NaN in every buffer not yet written, and Triton's functions redirected once, not at every call."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the kernels are compiled for a GPU: run with -m 'not gpu'")
    from triton.runtime import interpreter as triton

    from hmrnn.ops.cuda import kernels

    monkeypatch.setattr(engine, "why_not", lambda device, dtype: None)
    monkeypatch.setattr(Spec, "new", poisoned)
    # a third of its time: a table that is made anew at every call, and 64 bits for every sum of integers
    monkeypatch.setattr(triton, "_get_np_dtype", lambda kind, find=triton._get_np_dtype: _known(kind, find))
    monkeypatch.setattr(type(triton.interpreter_semantic), "binary_op_sanitize_overflow_impl", lambda *given: None)
    scopes = [triton._patch_lang(function.fn) for function in (kernels.cell_forward, triton.tl.sum)]
    monkeypatch.setattr(triton, "_patch_lang", lambda fn: type(scopes[0])())
    # Triton 3.6's own takes int() of an array (1,), which NumPy 2.4 refuses; later ones do as here
    scopes[0].set_attr(triton.tl.tensor, "__index__", lambda self: self.handle.data.item())
    yield
    for scope in reversed(scopes):
        scope.restore()
