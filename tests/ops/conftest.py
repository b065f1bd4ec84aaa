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


def _hasten(monkeypatch: pytest.MonkeyPatch, tl: Any, semantic: Any) -> None:
    """Types and shapes of tensors made once for each shape: else most of the interpreter's time goes there."""
    blocks: dict[Any, Any] = {}
    shapes: dict[Any, Any] = {}
    new, typed, broadcast = tl.tensor.__init__, tl.block_type.with_element_ty, semantic.broadcast_impl_value

    def tensor(self: Any, handle: Any, type: Any) -> None:
        shape = (*type.shape,) if type.is_block() else ()
        if shape not in shapes:
            new(self, handle, type)
            shapes[shape] = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shapes[shape]

    def block_of(self: Any, scalar: Any) -> Any:
        key = str(scalar), *self.shape
        if key not in blocks:
            blocks[key] = typed(self, scalar)
        return blocks[key]

    def alike(self: Any, a: Any, b: Any) -> Any:
        return (a, b) if a.shape is b.shape else broadcast(self, a, b)

    monkeypatch.setattr(tl.tensor, "__init__", tensor)
    monkeypatch.setattr(tl.block_type, "with_element_ty", block_of)
    monkeypatch.setattr(tl.block_type, "to_ir", lambda self, builder: self)
    monkeypatch.setattr(semantic, "broadcast_impl_value", alike)


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
    _hasten(monkeypatch, triton.tl, type(triton.interpreter_semantic))
    scopes = [triton._patch_lang(function.fn) for function in (kernels.cell_forward, triton.tl.sum)]
    monkeypatch.setattr(triton, "_patch_lang", lambda fn: type(scopes[0])())
    # Triton 3.6's own takes int() of an array (1,), which NumPy 2.4 refuses; later ones do as here
    scopes[0].set_attr(triton.tl.tensor, "__index__", lambda self: self.handle.data.item())
    yield
    for scope in reversed(scopes):
        scope.restore()
