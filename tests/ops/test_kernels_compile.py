"""The kernels of the cuda engine, compiled for an H100 or H200, without a GPU.

The interpreter runs the kernels as Python and so lets pass what Triton's compiler refuses. Most of that is refused on
the way to Triton's first representation, where these tests end; in make stress they go on to the last.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from pairs import FULL

pytest.importorskip("triton", reason="Triton is not installed")

# three of the 16, the last in make stress: every kernel, and every option with and without
CASES = {"1101": "layer norm, bfloat16, hidden layers of detectors, reinforce", "0100": "bfloat16, reinforce"}
CASES |= {"0010": "float32, dropout between layers, gumbel"} if FULL else {}

COMPILE = """
import sys
from types import SimpleNamespace
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver, jit

class Driver:  # what the compiler asks of a GPU
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device=0):
        return 0
    def map_python_to_cpp_type(self, kind):
        return "void*"

driver.set_active(Driver())
run, compiled = jit.JITFunction.run, {}
whole = jit.JITFunction._do_compile

class Enough(Exception):
    pass

def end_here(module, *rest):
    raise Enough(str(module))

def first_stage(self, key, *rest):
    try:
        return whole(self, key, *rest)
    except Enough as end:
        kernel = SimpleNamespace(asm={"cubin": end.args[0]})
        self.device_caches[0][0][key] = kernel  # as those that are compiled to the end
        return kernel

def compile_only(self, *args, grid, warmup, **options):
    kernel = run(self, *args, grid=grid, warmup=True, **options)
    compiled.setdefault(self.fn.__name__, []).append(len(kernel.asm["cubin"]))

jit.JITFunction.run = compile_only
if sys.argv[1] == "first":
    CUDABackend.make_ttgir = staticmethod(end_here)
    jit.JITFunction._do_compile = first_stage

from hmrnn.ops.cuda import engine as cuda
from hmrnn.nn.hmlstm import HMLSTM

cuda.why_not = lambda device, dtype: None
for case in sys.argv[2:]:
    layer_norm, half, dropout, hidden = (letter == "1" for letter in case)
    boundary, units, layers = "reinforce" if half else "gumbel", 24 if hidden else 0, 2 if hidden else 3
    rnn = HMLSTM(8, 16, layers, layer_norm=layer_norm, boundary=boundary, detector_hidden=units)
    x, noise = torch.randn(1, 2, 8, requires_grad=True), torch.rand(1, 2, layers - 1)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        seen = [torch.ones(2, 16)] * 2 if dropout else None
        given = rnn.layers(), rnn.initial_state(2), rnn.options()
        hidden = cuda.hmlstm(x, *given, noise=noise, seen=seen).hidden
    torch.autograd.backward(hidden, [torch.ones_like(h) for h in hidden])
    print(*(f"{case} {name} {len(sizes)} {min(sizes)}" for name, sizes in sorted(compiled.items())), sep="\\n")
    compiled.clear()
"""


@pytest.mark.long
def test_every_kernel_compiles(tmp_path: Path) -> None:
    """All cases in one process, which takes seconds to start."""
    environment = tiny.environment(tmp_path) | {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILE, "all" if FULL else "first", *CASES]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    for case, name in CASES.items():
        lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith(f"{case} ")]
        found = {kernel: (int(count), int(size)) for kernel, count, size in lines}
        wanted = {"cell_forward", "cell_backward", "start", "finish", "weigh", "column_sums"}
        wanted |= {"apply_gain"} if "layer norm" in name else set()
        wanted |= {"row_dots"} if "hidden" not in name else set()
        assert set(found) == wanted, name
        layers = 2 if "hidden" in name else 3
        assert found["cell_forward"][0] == found["cell_backward"][0] == layers, name  # one for each layer
        assert all(size > 1000 for _, size in found.values()), name
