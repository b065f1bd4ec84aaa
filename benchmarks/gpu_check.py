"""The cuda engine on one GPU: is it right, and how fast is it? Prints a short report.

    PYTHONPATH=src python benchmarks/gpu_check.py

Child processes compile and check side by side, then others take peak memory, each in a process that has done nothing
else; the timings follow, alone on the GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402

from hmrnn.cli.measure import captured, environment  # noqa: E402
from hmrnn.nn.hmlstm import HMLSTM  # noqa: E402
from hmrnn.ops import State, reference  # noqa: E402
from hmrnn.ops.cuda import cache as cuda_cache  # noqa: E402
from hmrnn.ops.cuda import engine as cuda  # noqa: E402
from hmrnn.ops.cuda import kernels  # noqa: E402
from hmrnn.ops.cuda.gradients import weight_gradients  # noqa: E402
from hmrnn.ops.cuda.layer import Spec  # noqa: E402

SHAPES = [(64, 512), (128, 1024), (512, 1024)]
TARGETS = {(64, 512): 4.4, (128, 1024): 8.7, (512, 1024): 16.9}
T, INPUT = 100, 128
STARTED = time.time()


def say(*parts: object) -> None:
    print(f"[{time.time() - STARTED:5.0f}s]", *parts, flush=True)


def attempt(section: Callable[..., None], *arguments: object) -> None:
    """Run a section; if it fails, say how and go on."""
    try:
        section(*arguments)
    except Exception:
        say(f"FAILED {section.__name__}{arguments}\n{traceback.format_exc(limit=12)}")


# Is it right? Each group in a process of its own.


def check_large(precision: str, layer_norm: str) -> None:
    from against_reference import Case, errors, evaluate, expected, make

    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    case = Case((512, 512, 512), 63, 7, 128, layer_norm == "norm", forced="all", straight_through=True, gain=0.2)
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, "launched"),
        ({}, "captured"),
        ({}, "replayed"),
        ({"B": 160, "T": 20}, "launched"),
    ]
    if precision == "float32":
        changes.append(({"T": 500}, "launched"))
    for change, call in changes:
        given = make(dataclasses.replace(case, **change), dtype, "cuda", seed=len(call))
        found = errors(evaluate(cuda.hmlstm, given, dtype), expected(given))
        names = sorted(found, key=lambda name: -found[name] if found[name] == found[name] else -9e9)
        shown = ", ".join(f"{name} {found[name]:.1e}" for name in names[:3])
        outputs = max(value for name, value in found.items() if "gradient" not in name)
        print(f"  {precision} {layer_norm} {change} {call}: outputs {outputs:.1e}; worst: {shown}", flush=True)


def check_options(layer_norm: str) -> None:
    from against_reference import Case, evaluate, expected, make, worst

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    norm = layer_norm == "norm"
    for case in (
        Case((130, 96, 77), 33, 9, 65, norm, forced="all", on_copy="hold", lengths=True, symbols=50, gain=0.2),
        Case((40, 30, 50), 12, 4, 20, norm, boundary="sample", on_copy="hold", detector=0.3),
        Case((40, 30, 50, 20), 12, 4, 20, norm, boundary="soft", detector=0.3, lengths=True),
        Case((60,), 12, 4, 20, norm),
    ):
        for call in range(2):
            given = make(case, torch.float32, "cuda", call)
            error, name = worst(evaluate(cuda.hmlstm, given, torch.float32), expected(given))
            print(f"  {case} call {call}: {error:.1e} {name} {'' if error < 1e-3 else '<<<'}", flush=True)


def check_order(layer_norm: str) -> None:
    """Two forwards before their backwards, backward twice, inside a capture of the caller's."""
    torch.manual_seed(0)
    rnn = HMLSTM(24, (48, 32, 64), layer_norm=layer_norm == "norm").cuda()
    parameters = list(rnn.parameters())
    xs = [torch.randn(9, 16, 24, device="cuda") for _ in range(2)]
    forced = (torch.rand(9, 16, 2, device="cuda") > 0.5).float()

    def loss(x: Tensor, run: Callable[..., object]) -> Tensor:
        options = dataclasses.replace(rnn.options(), straight_through=True)
        result = run(x, rnn.layers(), rnn.initial_state(16), options, boundaries=forced)
        return torch.stack([h.float().square().sum() for h in result.hidden]).sum()  # type: ignore[attr-defined]

    def distance(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> float:
        return max(((x - y).norm() / (y.norm() + 1e-6)).item() for x, y in zip(a, b))

    want = [torch.autograd.grad(loss(x, reference.hmlstm), parameters) for x in xs]
    worst = 0.0
    for _ in range(3):
        losses = [loss(x, cuda.hmlstm) for x in xs]
        for i in (0, 1, 0):
            worst = max(worst, distance(torch.autograd.grad(losses[i], parameters, retain_graph=True), want[i]))
        del losses
    graph, x = torch.cuda.CUDAGraph(), xs[0].clone()
    with torch.cuda.graph(graph):
        got = torch.autograd.grad(loss(x, cuda.hmlstm), parameters)
    x.copy_(xs[1])
    graph.replay()
    inside = distance(got, want[1])
    print(f"  order of use {layer_norm}: {worst:.1e}, inside the caller's capture {inside:.1e}", flush=True)


# How fast is it?


def network(H: int, layer_norm: bool) -> HMLSTM:
    torch.manual_seed(0)
    return HMLSTM(INPUT, H, 3, layer_norm=layer_norm).cuda()


@dataclasses.dataclass
class Step:
    """A training step as a user takes it, under autocast: forward, backward, gradients of all parameters."""

    rnn: HMLSTM
    x: Tensor
    forced: Tensor | None
    engine: str = "cuda"

    def __post_init__(self) -> None:
        B, H = self.x.shape[1], self.rnn.hidden_sizes[0]
        kind = torch.bfloat16 if self.engine == "cuda" else torch.float32
        self.gradient = [torch.randn(len(self.x), B, H, device="cuda", dtype=kind) for _ in range(3)]
        self.options = dataclasses.replace(self.rnn.options(), straight_through=True)

    def __call__(self) -> None:
        run = cuda.hmlstm if self.engine == "cuda" else reference.hmlstm
        self.rnn.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            state: State = self.rnn.initial_state(self.x.shape[1])
            result = run(self.x, self.rnn.layers(), state, self.options, boundaries=self.forced)
        torch.autograd.backward(result.hidden, self.gradient)


def step_of(B: int, H: int, layer_norm: bool, dense: bool, steps: int = T, engine: str = "cuda") -> Step:
    x = torch.randn(steps, B, INPUT, device="cuda")
    return Step(network(H, layer_norm), x, torch.ones(steps, B, 2, device="cuda") if dense else None, engine)


def milliseconds(run: Callable[[], object], times: int = 20, warm: int = 4) -> float:
    for _ in range(warm):
        run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


@contextlib.contextmanager
def variant(parts: int | None = None, per_thread: int | None = None) -> Iterator[None]:
    """Other choices than the engine's own: products in parts, numbers per thread of a cell kernel."""
    kept_parts, kept_block = Spec.__dict__["parts"], kernels.block
    if parts is not None:
        Spec.parts = parts  # type: ignore[assignment, method-assign]
    if per_thread is not None:
        kernels.block = functools.partial(kept_block, per_thread=per_thread)
    try:
        yield
    finally:
        kernels.block = kept_block
        Spec.parts = kept_parts  # type: ignore[method-assign]
        cuda_cache._devices.clear()


def compile_kernels(H: str, layer_norm: str, what: str) -> None:
    """The kernels of the timings to come, into Triton's cache."""
    variants: list[dict[str, Any]] = [{"parts": 4}, {"parts": 1}, {"parts": 2}]
    if what == "threads":
        variants = [{"per_thread": n, "parts": 4 if H == "512" else 2} for n in (2, 8)]
    for chosen in variants:
        with variant(**chosen):
            step_of(64, int(H), layer_norm == "norm", dense=True, steps=2)()
            if H == "512" and what == "parts":
                step_of(64, int(H), layer_norm == "norm", dense=False, steps=2)()
    torch.cuda.synchronize()


def name_of(B: int, H: int, layer_norm: bool) -> str:
    return f"B={B} H={H} {'norm' if layer_norm else 'no norm'}"


def time_shape(B: int, H: int, layer_norm: bool, dense: bool = True) -> None:
    step = step_of(B, H, layer_norm, dense)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    took = milliseconds(step)
    begin = time.time()
    for _ in range(20):
        step()
    launched = 50 * (time.time() - begin)
    torch.cuda.synchronize()
    in_a_row = 50 * (time.time() - begin)
    limit = TARGETS[B, H] * (1.35 if layer_norm else 1)
    name = f"{name_of(B, H, layer_norm)} {'dense' if dense else 'free'}"
    say(f"{name}: {took:.2f} ms (to reach: {limit:.1f}); one after another {in_a_row:.2f}, host {launched:.2f} ms")
    if dense:
        parts = {name: milliseconds(run, 10) for name, run in parts_of_a_step(step).items()}
        say("   ", ", ".join(f"{name} {value:.2f}" for name, value in parts.items()), "ms")
    cuda_cache._devices.clear()


def parts_of_a_step(step: Step) -> dict[str, Callable[[], object]]:
    """The graphs of the last step, its weight gradients without the host's time, and the whole step so."""
    instance = next(iter(cuda_cache._devices.values())).idle[-1]
    plan = instance.plan
    fields = ("b", *(plan.layers[0].gains if plan.spec.norm else ()))
    wanted = [dict.fromkeys((*layer.reads, *fields), torch.float32) for layer in plan.layers]
    for layer, names in zip(plan.layers, wanted):
        if layer.top:
            names.pop("gain_V", None)
    gradients = captured(torch.no_grad()(lambda: weight_gradients(plan, wanted)))
    loads = [graph.replay for graph in instance.loads.values()]
    graphs: dict[str, Callable[[], object]] = {f"load {i}": load for i, load in enumerate(loads)}
    graphs |= {name: graph.replay for name, graph in instance.graphs.items()}
    return graphs | {
        "gradients": gradients,
        "results": plan.result,
        "step in a CUDA graph": captured(step),
    }


def compare(B: int, H: int, layer_norm: bool, variants: list[dict[str, Any]]) -> None:
    """Forward and backward graphs under other choices than the engine's."""
    say(f"{name_of(B, H, layer_norm)}: forward and backward graph under other choices")
    for chosen in variants:
        with variant(**chosen):
            step = step_of(B, H, layer_norm, dense=True)
            for _ in range(3):
                step()
            graphs = next(iter(cuda_cache._devices.values())).idle[-1].graphs
            took = " ".join(f"{milliseconds(graph.replay, 10, 2):6.2f}" for graph in graphs.values())
            print(f"    {took}  {' '.join(f'{key}={value}' for key, value in chosen.items())}", flush=True)


def profile(B: int, H: int, layer_norm: bool) -> None:
    """The kernels of a step, by their share of the time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    step = step_of(B, H, layer_norm, dense=True)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    with record(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)[:16]
    say(f"kernels of a step at {name_of(B, H, layer_norm)}:")
    for row in rows:
        print(f"    {row.device_time_total / 1e3:7.3f} ms {row.count:5d} × {row.device_time:6.1f} µs  {row.key[:90]}")
    cuda_cache._devices.clear()


def profiles() -> None:
    """What a step takes, where its time goes, and what other choices would give: results/bench/h200-profile.txt."""
    for layer_norm in (True, False):
        for B, H in SHAPES:
            attempt(time_shape, B, H, layer_norm)
    for layer_norm in (True, False):
        for B, H in SHAPES:
            attempt(profile, B, H, layer_norm)
    for B, H in SHAPES[1:]:
        attempt(compare, B, H, True, [{}, {"per_thread": 2}, {"per_thread": 8}])


def memory(B: str, H: str, layer_norm: str, engine: str) -> None:
    """Peak memory of a training step, in a process that has done nothing else."""
    step = step_of(int(B), int(H), layer_norm == "norm", dense=True, engine=engine)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for _ in range(1 if engine == "reference" else 4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    print(f"  peak {peak / 2**20:.0f} MiB, of which the caller held {held / 2**20:.0f} before")


def long_sequence() -> None:
    rnn = network(512, False)
    for steps in (1000, 4000):
        x = torch.randn(steps, 16, INPUT, device="cuda")
        run = functools.partial(cuda.hmlstm, x, rnn.layers(), rnn.initial_state(16), rnn.options())
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            took = milliseconds(run, 3, 2)
        say(f"evaluation of {steps} steps, B=16 H=512: {took:.1f} ms, {1e3 * took / steps:.1f} µs a step")
    cuda_cache._devices.clear()


def checks() -> Iterator[list[str]]:
    for norm in ("norm", "plain"):
        for H in ("1024", "512"):
            yield ["compile_kernels", H, norm, "parts"]
            yield ["compile_kernels", H, norm, "threads"]
        yield ["check_large", "float32", norm]
        yield ["check_large", "bfloat16", norm]
        yield ["check_options", norm]
        yield ["check_order", norm]


def memories() -> Iterator[list[str]]:
    for B, H in (SHAPES[0], SHAPES[2]):
        for norm in ("plain", "norm"):
            for engine in ("reference", "cuda"):
                yield ["memory", str(B), str(H), norm, engine]


def run_side_by_side(tasks: list[list[str]]) -> None:
    running = [
        (task, subprocess.Popen([sys.executable, __file__, *task], stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for task in tasks
    ]
    for task, process in running:
        try:
            output, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        lines = output.decode(errors="replace").splitlines()
        if process.returncode == 0:
            say(" ".join(task))
            print("\n".join(lines[-12:]), flush=True)
        else:
            say("FAILED", " ".join(task), f"status {process.returncode}")
            print("\n".join(lines[-40:]), flush=True)


def main() -> None:
    if sys.argv[1:] in ([], ["profiles"]):
        say(", ".join(f"{name} {value}" for name, value in environment("cuda").items()))
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](*sys.argv[2:])
        return
    say(f"triton {triton.__version__}")
    run_side_by_side(list(checks()))
    run_side_by_side(list(memories()))
    for B, H in SHAPES:
        for layer_norm in (False, True):
            attempt(time_shape, B, H, layer_norm)
    attempt(time_shape, *SHAPES[0], True, False)
    for layer_norm in (False, True):
        attempt(profile, 64, 512, layer_norm)
        attempt(profile, 512, 1024, layer_norm)
    parts: list[dict[str, Any]] = [{"parts": n} for n in (1, 2, 4)]
    threads: list[dict[str, Any]] = [{"per_thread": n} for n in (2, 8)]
    for B, H in SHAPES:
        attempt(compare, B, H, False, parts + (threads if B != 128 else []))
    for B, H in (SHAPES[0], SHAPES[2]):
        attempt(compare, B, H, True, parts + threads)
    attempt(long_sequence)


if __name__ == "__main__":
    main()
