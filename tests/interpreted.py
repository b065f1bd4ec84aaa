"""Run the cuda engine in Triton's interpreter, on the CPU: what the tests of its kernels share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from hmrnn.ops.cuda.layer import Spec

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def run_tests(file: str) -> int:
    """Run a test file in a process of its own, as the interpreter has to be asked for before Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not gpu", file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    return int(found[1])


def poisoned(spec: Spec, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """A buffer in which everything that is not written is noticed."""
    dtype = dtype or spec.dtype
    value = float("nan") if dtype.is_floating_point else min(10**6, torch.iinfo(dtype).max)
    return torch.full(shape, value, dtype=dtype, device=spec.device)


def interpreter() -> Iterator[None]:
    """On the CPU, NaN in every buffer not yet written, and Triton's functions redirected once, not at every call."""
    from triton.runtime import interpreter as triton_interpreter

    from hmrnn.ops.cuda import engine, kernels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "why_not", lambda device, dtype: None)
        patch.setattr(Spec, "new", poisoned)
        for function in (kernels.cell_forward, triton_interpreter.tl.sum):
            scope = triton_interpreter._patch_lang(function.fn)
        patch.setattr(triton_interpreter, "_patch_lang", lambda fn: type(scope)())
        # Triton 3.6's own takes int() of an array (1,), which NumPy 2.4 refuses; later ones do as here
        patch.setattr(triton_interpreter.tl.tensor, "__index__", lambda self: self.handle.data.item(), raising=False)
        yield
