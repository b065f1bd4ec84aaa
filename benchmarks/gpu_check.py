"""The cuda engine on one GPU: is it right, and how fast is it? Prints a short report.

    PYTHONPATH=src python benchmarks/gpu_check.py

Child processes compile and check side by side; the timings follow, alone on the GPU.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from hmrnn.ops import State, cuda, reference  # noqa: E402
from hmrnn.rnn import HMLSTM  # noqa: E402

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
    case = Case((512, 512, 512), 63, 7, 128, layer_norm == "norm", forced="all", straight_through=True)
    for steps, call in ((63, "launched"), (63, "captured"), (63, "replayed"), (500, "launched")):
        given = make(dataclasses.replace(case, T=steps), dtype, "cuda", seed=len(call))
        found = errors(evaluate(cuda.hmlstm, given, dtype), expected(given))
        names = sorted(found, key=lambda name: -found[name] if found[name] == found[name] else -9e9)
        shown = ", ".join(f"{name} {found[name]:.1e}" for name in names[:3])
        outputs = max(value for name, value in found.items() if "gradient" not in name)
        print(f"  {precision} {layer_norm} T={steps} {call}: outputs {outputs:.1e}; worst: {shown}", flush=True)


def check_options(layer_norm: str) -> None:
    from against_reference import Case, evaluate, expected, make, worst

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    norm = layer_norm == "norm"
    for case in (
        Case((130, 96, 77), 33, 9, 65, norm, forced="some", on_copy="hold", lengths=True, symbols=50, detector=0.3),
        Case((40, 30, 50), 12, 4, 20, norm, boundary="sample", on_copy="hold", detector=0.3),
        Case((40, 30, 50, 20), 12, 4, 20, norm, boundary="soft", detector=0.3, lengths=True),
        Case((60,), 12, 4, 20, norm),
    ):
        for call in range(2):
            given = make(case, torch.float32, "cuda", call)
            error, name = worst(evaluate(cuda.hmlstm, given, torch.float32), expected(given))
            print(f"  {case} call {call}: {error:.1e} {name} {'' if error < 1e-3 else '<<<'}", flush=True)


def check_flips(precision: str) -> None:
    from against_reference import Case, evaluate, make

    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    given = make(Case((512, 512, 512), T, 64, INPUT), dtype, "cuda")
    got = evaluate(cuda.hmlstm, given, dtype, gradients=False)["boundaries"]
    want = evaluate(reference.hmlstm, given, torch.float64, gradients=False)["boundaries"]
    differ = (got != want).double()
    shown = ", ".join(f"{differ[:n].mean().item():.2%} in {n}" for n in (1, 10, 100))
    print(f"  {precision}: free boundaries that differ from float64's: {shown} steps", flush=True)


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


def compile_kernels(H: str, layer_norm: str, dense: str) -> None:
    step_of(64, int(H), layer_norm == "norm", dense == "dense", steps=2)()
    torch.cuda.synchronize()


def time_shape(B: int, H: int) -> None:
    base = None
    for layer_norm in (False, True):
        for dense in (True, False):
            step = step_of(B, H, layer_norm, dense)
            begin = time.time()
            for _ in range(3):
                step()
            torch.cuda.synchronize()
            first = time.time() - begin
            took = milliseconds(step)
            base = took if base is None else base
            name = f"B={B} H={H} {'norm' if layer_norm else 'no norm'} {'dense' if dense else 'free'}"
            limit = TARGETS[B, H] * (1.35 if layer_norm else 1)
            ratio = took / base
            say(f"{name}: {took:.2f} ms (to reach: {limit:.1f}), {ratio:.2f} of the first; started in {first:.1f} s")
            if dense:
                break_down()
            cuda._devices.clear()


def break_down() -> None:
    """The parts of the last step: its graphs alone, and the weight gradients."""
    device = next(iter(cuda._devices.values()))
    instance = device.idle[-1]
    plan, graphs = instance.plan, instance.graphs
    with torch.no_grad():
        parts = {name: milliseconds(graph.replay, 10) for name, graph in graphs.items()}
        wanted = [dict.fromkeys(layer.reads, torch.float32) | {"b": torch.float32} for layer in plan.layers]
        parts["gradients"] = milliseconds(lambda: plan.gradients(None, wanted), 10)
        parts["results"] = milliseconds(plan.result, 10)
    say("   ", ", ".join(f"{name} {value:.2f}" for name, value in parts.items()), "ms")


def profile(B: int, H: int, layer_norm: bool) -> None:
    """The kernels of a step, by their share of the time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    step = step_of(B, H, layer_norm, dense=True)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    with record(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)[:12]
    say(f"kernels of a step at B={B} H={H} {'norm' if layer_norm else 'no norm'}:")
    for row in rows:
        print(f"    {row.device_time_total / 1e3:7.3f} ms {row.count:5d} × {row.device_time:6.1f} µs  {row.key[:90]}")
    cuda._devices.clear()


def time_lstm(B: int, H: int) -> None:
    lstm = nn.LSTM(INPUT, H, 3, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(T, B, INPUT, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn(T, B, H, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        lstm.zero_grad(set_to_none=True)
        lstm(x)[0].backward(gradient)

    called = milliseconds(step)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    say(f"B={B} H={H} nn.LSTM bf16: as called {called:.2f} ms, in a CUDA graph {milliseconds(graph.replay):.2f} ms")


def memory(B: int, H: int, layer_norm: bool) -> None:
    peaks, took = {}, {}
    for engine in ("reference", "cuda"):
        step = step_of(B, H, layer_norm, dense=True, engine=engine)
        for _ in range(1 if engine == "reference" else 3):
            step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.time()
        step()
        torch.cuda.synchronize()
        took[engine] = time.time() - begin
        peaks[engine] = torch.cuda.max_memory_allocated() / 2**20
        cuda._devices.clear()
        del step
    ratio, faster = peaks["reference"] / peaks["cuda"], took["reference"] / took["cuda"]
    name = f"B={B} H={H} {'norm' if layer_norm else 'no norm'}"
    say(f"{name}: peak {peaks['cuda']:.0f} MiB, reference {peaks['reference']:.0f} MiB: {ratio:.1f} × less")
    say(f"{name}: {1e3 * took['cuda']:.1f} ms, reference {1e3 * took['reference']:.0f} ms: {faster:.0f} × as fast")


def long_sequence() -> None:
    rnn = network(512, False)
    for steps in (1000, 10_000):
        x = torch.randn(steps, 16, INPUT, device="cuda")
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            took = milliseconds(lambda x=x: cuda.hmlstm(x, rnn.layers(), rnn.initial_state(16), rnn.options()), 3, 2)
        say(f"evaluation of {steps} steps, B=16 H=512: {took:.1f} ms, {1e3 * took / steps:.1f} µs a step")
    cuda._devices.clear()


def children() -> Iterator[list[str]]:
    for norm in ("plain", "norm"):
        for precision in ("float32", "tf32", "bfloat16"):
            yield ["check_large", precision, norm]
        yield ["check_options", norm]
        yield ["check_order", norm]
        for H in ("512", "1024"):
            for dense in ("dense", "free"):
                yield ["compile_kernels", H, norm, dense]
    for precision in ("float32", "tf32", "bfloat16"):
        yield ["check_flips", precision]


def main() -> None:
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](*sys.argv[2:])
        return
    import triton

    say(f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name()}")
    running = [
        (task, subprocess.Popen([sys.executable, __file__, *task], stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for task in children()
    ]
    for task, process in running:
        try:
            output, _ = process.communicate(timeout=150)
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
    for B, H in SHAPES:
        attempt(time_shape, B, H)
        attempt(time_lstm, B, H)
    for layer_norm in (False, True):
        attempt(profile, 64, 512, layer_norm)
        attempt(profile, 512, 1024, layer_norm)
    for B, H in (SHAPES[0], SHAPES[2]):
        for layer_norm in (False, True):
            attempt(memory, B, H, layer_norm)
    attempt(long_sequence)


if __name__ == "__main__":
    main()
