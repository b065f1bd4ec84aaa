"""The measurements of ``hmrnn bench``: this package and ``torch.nn.LSTM``, in turn, beside a bound of the machine.

Boundaries are forced at given rates, so that the results do not depend on what a random network detects; their gradient
still reaches the detectors, as in training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hmrnn import __version__, ops
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops.cuda import engine as cuda
from hmrnn.ops.cuda.captures import capturing

RATES = {"dense": (1.0, 1.0), "first trained": (0.4, 0.1), "figure 4": (0.21, 0.033), "no FLUSH": (0.19, 0.045)}
"""Boundary rates of z¹ and z²; every boundary of level 2 is also one of level 1."""
CELLS: dict[str, dict[str, Any]] = {"no FLUSH": {"flush": False, "top_down": "pending"}}
"""Options of the cell at these rates, if they are not those of the paper."""
LAYERS, INPUT, SEED = 3, 128, 0


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes, device and arithmetic of a measurement."""

    batch: int
    hidden: int
    steps: int = 100
    device: str = "cpu"
    precision: str = "float32"
    layer_norm: bool = False

    def __str__(self) -> str:
        norm = ", hmrnn with layer norm" if self.layer_norm else ""
        return f"B={self.batch} H={self.hidden} T={self.steps}, {self.precision} on {self.device}{norm}"


@dataclasses.dataclass
class Measurement:
    """The times of one implementation in one case."""

    case: Case
    mode: str
    subject: str
    milliseconds: list[float]
    peak_bytes: int | None
    floor_milliseconds: float

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": str(self.case), "mode": self.mode, "subject": self.subject, "median_ms": self.median,
            "all_ms": self.milliseconds, "peak_bytes": self.peak_bytes, "floor_ms": self.floor_milliseconds,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Machine:
    """The measured speed of the hardware."""

    flops: float
    bytes_per_second: float

    def floor(self, flops: float, moved: float) -> float:
        """A lower bound on the milliseconds of any implementation."""
        return 1e3 * max(flops / self.flops, moved / self.bytes_per_second)


def measure_machine(device: str, precision: str) -> Machine:
    """The rate of a large matrix product and the bandwidth of a large copy (bytes read plus bytes written)."""
    n, dtype = (8192 if device == "cuda" else 1024), _dtype(precision)
    a, b = torch.randn(2, n, n, device=device, dtype=dtype)
    source = torch.empty((1 << 30) if device == "cuda" else (1 << 26), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    product = min(_time(lambda: a @ b, device) for _ in range(5))
    copy = min(_time(lambda: target.copy_(source), device) for _ in range(5))
    return Machine(2 * n**3 / product * 1e3, 2 * source.numel() / copy * 1e3)


def forced_boundaries(case: Case, rates: tuple[float, float]) -> Tensor:
    """(T, B, 2): z¹ at its rate, as exactly as whole numbers allow, and z² at its own among the boundaries of z¹."""
    generator = torch.Generator().manual_seed(SEED)
    rank = torch.randperm(case.steps * case.batch, generator=generator).view(case.steps, case.batch, 1)
    counts = torch.tensor([round(rate * rank.numel()) for rate in rates])
    return (rank < counts).float().to(case.device)


def run(case: Case, mode: str, repeats: int, engines: list[str], progress: Callable[[str], None]) -> list[Measurement]:
    """Measure every implementation ``repeats`` times, in turn."""
    machine = measure_machine(case.device, case.precision)
    progress(f"{case}: {machine.flops / 1e9:,.0f} GFLOP/s, {machine.bytes_per_second / 1e9:,.1f} GB/s measured")
    subjects = dict(_subjects(case, mode, engines))
    steps = case.steps if mode == "stream" else 1
    peaks = {name: _peak(work, case.device) for name, (work, _) in subjects.items()}  # also the warm-up
    for _ in range(2 if case.device == "cuda" else 0):  # measuring a peak frees the captured graphs of the others
        for work, _ in subjects.values():
            work()
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repeats):
        for name, (work, _) in subjects.items():
            times[name].append(_time(work, case.device) / steps)
    return [
        Measurement(case, mode, name, times[name], peaks[name], machine.floor(*cost) / steps)
        for name, (_, cost) in subjects.items()
    ]


Work = Callable[[], Any]
Cost = tuple[float, float]  # floating-point operations, bytes moved


def _subjects(case: Case, mode: str, engines: list[str]) -> Iterator[tuple[str, tuple[Work, Cost]]]:
    torch.manual_seed(SEED)
    x = torch.randn(case.steps, case.batch, INPUT, device=case.device)
    lstm = nn.LSTM(INPUT, case.hidden, LAYERS, device=case.device, dtype=_dtype(case.precision))
    yield "nn.LSTM", (_lstm_work(lstm, x.to(_dtype(case.precision)), mode), _lstm_cost(case, mode))
    if case.device == "cpu":  # which is faster on some machines
        work = without_onednn(_lstm_work(lstm, x.to(_dtype(case.precision)), mode))
        yield "nn.LSTM without oneDNN", (work, _lstm_cost(case, mode))
    if case.device == "cuda" and mode != "stream":
        if case.precision == "bf16":  # as this package runs: with weights in float32
            single = nn.LSTM(INPUT, case.hidden, LAYERS, device=case.device)
            yield "nn.LSTM under autocast", (_lstm_work(single, x, mode, autocast=True), _lstm_cost(case, mode))
        work = captured(_lstm_work(lstm, x.to(_dtype(case.precision)), mode))
        yield "nn.LSTM in a CUDA graph", (work, _lstm_cost(case, mode))
    for engine in engines if mode != "stream" else ["step"]:
        for name, rates in RATES.items():
            if engine == "reference" and name != "dense":
                continue  # the reference computes all layers at every step
            torch.manual_seed(SEED)
            rnn = HMLSTM(
                INPUT, case.hidden, LAYERS, layer_norm=case.layer_norm, engine="auto" if mode == "stream" else engine,
                **CELLS.get(name, {}),
            ).to(case.device)  # fmt: skip
            rnn.rates = rates
            z = forced_boundaries(case, rates)
            work = _stream_work(rnn, x, z) if mode == "stream" else _hm_work(rnn, x, z, mode, case, engine)
            shown = f"hmrnn {engine}, {name} ({rates[0]:g}, {rates[1]:g})"
            if mode == "train" and engine == _auto(rnn, case):
                shown += " = auto"
            yield shown, (work, _hm_cost(case, mode, z, rnn.flush))


def _auto(rnn: HMLSTM, case: Case) -> str:
    """The engine that "auto" chooses for a training step."""
    options, sizes, dtype = rnn.options(), rnn.hidden_sizes, _dtype(case.precision)
    return ops.choose_engine("auto", torch.device(case.device), options, dtype, case.batch, sizes)


def _lstm_work(lstm: nn.LSTM, x: Tensor, mode: str, autocast: bool = False) -> Work:
    dtype = torch.bfloat16 if autocast else x.dtype
    weight = torch.randn(*x.shape[:2], lstm.hidden_size, device=x.device, dtype=dtype)

    def call() -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16) if autocast else contextlib.nullcontext():
            return lstm(x)[0]

    def train() -> None:
        for p in lstm.parameters():
            p.grad = None
        call().backward(weight)

    @torch.no_grad()
    def forward() -> None:
        call()

    @torch.no_grad()
    def stream() -> None:
        state = None
        for x_t in x:
            _, state = lstm(x_t[None], state)

    return {"train": train, "forward": forward, "stream": stream}[mode]


def without_onednn(work: Work) -> Work:
    """``work`` with oneDNN switched off."""
    warnings.filterwarnings("ignore", message="TF32 acceleration")  # a warning of torch about the switch

    def run() -> None:
        with torch.backends.mkldnn.flags(enabled=False):
            work()

    return run


def _hm_work(rnn: HMLSTM, x: Tensor, z: Tensor, mode: str, case: Case, engine: str) -> Work:
    options = dataclasses.replace(rnn.options(), straight_through=True)
    state = rnn.initial_state(case.batch)
    shape = (case.steps, case.batch, case.hidden)
    weights = [torch.randn(shape, device=case.device) for _ in range(LAYERS)]
    autocast = torch.autocast(case.device, torch.bfloat16, enabled=case.precision == "bf16")

    def call() -> ops.Result:
        with autocast:
            return ops.hmlstm(x, rnn.layers(), state, options, boundaries=z, engine=engine)

    def train() -> None:
        for p in rnn.parameters():
            p.grad = None
        result = call()
        weights[:] = [w.to(h.dtype) for w, h in zip(weights, result.hidden)]  # does nothing after the first call
        torch.autograd.backward(result.hidden, weights)

    @torch.no_grad()
    def forward() -> None:
        call()

    return {"train": train, "forward": forward}[mode]


def _stream_work(rnn: HMLSTM, x: Tensor, z: Tensor) -> Work:
    def stream() -> None:
        state = None
        for x_t, z_t in zip(x, z):
            state = rnn.step(x_t, state, boundaries=z_t).state

    return stream


def _lstm_cost(case: Case, mode: str) -> Cost:
    H, passes = case.hidden, 3 if mode == "train" else 1
    weights = 4 * H * (INPUT + H) + (LAYERS - 1) * 4 * H * 2 * H
    rows = case.steps * case.batch
    reads = case.steps if mode == "stream" else 1
    return 2 * weights * rows * passes, _size(case) * (weights * reads + rows * LAYERS * 6 * H) * passes


def _hm_cost(case: Case, mode: str, z: Tensor, flush: bool = True) -> Cost:
    """Floating-point operations and bytes that the updates caused by the boundaries ``z`` need."""
    H, passes = case.hidden, 3 if mode == "train" else 1
    rows = case.steps * case.batch
    z1, z2 = (z[..., l].bool() for l in range(2))
    change2 = z1.clone()
    if flush:
        change2[1:] |= z2[:-1]
    n2, n3 = int(change2.sum()), int(z2.sum())
    flush1, fed2, flush2 = int(z1[:-1].sum()), int(z1.sum()), int(z2[:-1].sum())
    weights1, square = 4 * H * (INPUT + H), 4 * H * H
    flops = 2 * (weights1 * rows + square * (flush1 + n2 + fed2 + flush2 + 2 * n3))
    events = rows + n2 + n3
    moved = (flops / 2 if mode == "stream" else weights1 + 6 * square) + events * 6 * H
    return flops * passes, _size(case) * moved * passes


def captured(work: Work) -> Work:
    """``work`` as a CUDA graph, captured by the first call and replayed by all others."""
    graphs: list[torch.cuda.CUDAGraph] = []

    def replay() -> None:
        if graphs:
            graphs[0].replay()
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with capturing(graph):
            work()
        graphs.append(graph)

    return replay


def _time(work: Work, device: str) -> float:
    """Milliseconds of one call."""
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def _peak(work: Work, device: str) -> int | None:
    """Peak of the bytes that the first three calls allocate on a GPU, with the graph they capture; None on a CPU."""
    if device != "cuda":
        work()
        return None
    cuda.forget()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _size(case: Case) -> int:
    return 2 if case.precision == "bf16" else 4


def hardware(device: str) -> str:
    """The name of this machine in a table."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)"


def environment(device: str) -> dict[str, Any]:
    """Hardware, versions and conditions to record beside a result."""
    return {
        "hardware": hardware(device), "torch": torch.__version__, "hmrnn": __version__,
        "python": platform.python_version(), "commit": commit(), "date": time.strftime("%Y-%m-%d"),
        "seed": SEED, "load before": f"{os.getloadavg()[0]:.2f}",
    }  # fmt: skip


def commit() -> str:
    """The commit of the source: HMRNN_COMMIT if it is set, or that of the git checkout."""
    if "HMRNN_COMMIT" in os.environ:
        return os.environ["HMRNN_COMMIT"]
    here = Path(__file__).parent
    with contextlib.suppress(FileNotFoundError):  # git is not installed
        done = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        tracked = subprocess.run(["git", "-C", here, "ls-files", "--error-unmatch", __file__], capture_output=True)
        if done.returncode == tracked.returncode == 0:
            return done.stdout.strip()
    return "unknown"
