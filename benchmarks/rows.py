"""The cuda engine without products for rows that copy (engine="cuda-rows") beside the dense one and nn.LSTM.

    PYTHONPATH=src python benchmarks/rows.py [SECONDS]

Results are checked against the reference; then come times, a profile and the peak memory, in the order of importance:
after SECONDS (185) no further section starts. Compiling takes most of them. Every line is JSON; all of them also go to
rows.jsonl in $OUT, if that is set.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from hmrnn.nn.hmlstm import HMLSTM  # noqa: E402
from hmrnn.ops.cuda import cache as cuda_cache  # noqa: E402
from hmrnn.ops.cuda import engine as cuda  # noqa: E402
from hmrnn.ops.cuda.captures import capturing  # noqa: E402
from hmrnn.ops.cuda.gradients import weight_gradients  # noqa: E402
from hmrnn.ops.cuda.room import watched  # noqa: E402
from hmrnn.ops.cuda.rows_gradients import RowsGradients  # noqa: E402

SHAPES = [(64, 512), (128, 1024), (512, 1024)]
RATES = [(0.19, 0.045, False), (0.21, 0.033, True), (0.4, 0.1, True), (1.0, 1.0, True)]  # z¹, z², FLUSH
ENGINES: dict[str, Callable[..., Any]] = {"dense": cuda.hmlstm, "rows": cuda.hmlstm_rows}
T, INPUT = 100, 128
STARTED = time.time()
seconds = 185.0
"""After so many no further section starts."""


def say(**what: Any) -> None:
    line = json.dumps({"s": round(time.time() - STARTED), **what}, separators=(",", ":"))
    print(line, flush=True)
    if os.environ.get("OUT"):
        with open(Path(os.environ["OUT"]) / "rows.jsonl", "a") as file:
            file.write(line + "\n")


def attempt(section: Callable[..., None], *arguments: Any) -> None:
    """Run a section, unless time is up; if it fails, say how and go on."""
    if time.time() - STARTED > seconds:
        return
    try:
        section(*arguments)
    except Exception as error:
        say(failed=section.__name__, arguments=str(arguments)[:200], error=str(error)[:300])
        traceback.print_exc(limit=6)


# Is it right?


def cases() -> Iterator[tuple[Any, torch.dtype]]:
    from against_reference import Case

    base = Case((512, 512, 512), 12, 64, 128, forced="all", straight_through=True, gain=0.2, flush=False, detector=0.05)
    yield base, torch.bfloat16
    yield dataclasses.replace(base, sizes=(1024, 1024, 1024), B=512, T=6), torch.bfloat16
    yield dataclasses.replace(base, layer_norm=True), torch.bfloat16
    odd = dataclasses.replace(base, sizes=(130, 77, 96), B=70, top_down="pending", detector=1.0)
    yield odd, torch.float32
    yield dataclasses.replace(odd, flush=True, top_down="boundary", layer_norm=True, on_copy="hold"), torch.float32


def check(case: Any, dtype: torch.dtype) -> None:
    from against_reference import errors, evaluate, expected, make

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    for call in range(3):  # launched, captured, replayed
        given = make(case, dtype, "cuda", seed=call)
        found = errors(evaluate(ENGINES["rows"], given, dtype), expected(given))
        name = max(found, key=lambda name: 9e9 if found[name] != found[name] else found[name])
        outputs = max(value for name, value in found.items() if "gradient" not in name)
        say(check=f"{str(dtype)[6:]} {case}"[:150], call=call, outputs=f"{outputs:.1e}",
            worst=f"{name} {found[name]:.1e}")  # fmt: skip
    cuda.forget()


# How fast is it?


def forced(B: int, z1: float, z2: float) -> Tensor:
    """(T, B, 2): z¹ at its rate, z² at its own among the boundaries of z¹."""
    u = torch.rand(T, B, 2, generator=torch.Generator().manual_seed(0))
    first = u[..., 0] < z1
    return torch.stack([first, first & (u[..., 1] < z2 / z1)], dim=-1).float()


class Step:
    """A training step under autocast: forward, backward, gradients of all parameters."""

    def __init__(self, B: int, H: int, norm: bool, rates: tuple[float, float, bool], mode: str) -> None:
        torch.manual_seed(0)
        self.rnn, self.mode = HMLSTM(INPUT, H, 3, layer_norm=norm, flush=rates[2]).cuda(), mode
        self.rnn.rates = rates[:2]
        self.x, self.forced = torch.randn(T, B, INPUT, device="cuda"), forced(B, *rates[:2]).cuda()
        self.gradient = [torch.randn(T, B, H, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.options = dataclasses.replace(self.rnn.options(), straight_through=True)

    def __call__(self) -> None:
        self.rnn.zero_grad(set_to_none=True)
        with torch.autocast(self.x.device.type, torch.bfloat16):
            state = self.rnn.initial_state(self.x.shape[1])
            run = ENGINES[self.mode]
            result = run(self.x, self.rnn.layers(), state, self.options, boundaries=self.forced)
        torch.autograd.backward(result.hidden, self.gradient)


def captured(work: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with watched(), capturing(graph):  # boundaries are forced, so the room is enough
        work()
    return graph.replay


def lstm(B: int, H: int) -> Callable[[], object]:
    torch.manual_seed(0)
    net = nn.LSTM(INPUT, H, 3).cuda().bfloat16()
    x = torch.randn(T, B, INPUT, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn(T, B, H, device="cuda", dtype=torch.bfloat16)

    def work() -> None:
        net.zero_grad(set_to_none=True)
        net(x)[0].backward(gradient)

    return captured(work)


def once(run: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def medians(runs: dict[str, Callable[[], object]], times: int = 15) -> dict[str, float]:
    """Median milliseconds of each, in turn."""
    for run in runs.values():
        run(), run()
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            taken[name].append(once(run))
    return {name: round(statistics.median(values), 3) for name, values in taken.items()}


def parts(step: Step) -> dict[str, Callable[[], object]]:
    """The forward and the backward graph of a step, and its weight gradients."""
    cuda.forget()
    for _ in range(3):
        step()
    instance = next(iter(cuda_cache._devices.values())).idle[-1]
    plan = instance.plan
    gains = [name for name, gain in plan.layers[0].gains.items() if gain is not None]
    wanted = [dict.fromkeys((*layer.reads, "b", *gains), torch.float32) for layer in plan.layers]
    for layer, names in zip(plan.layers, wanted):
        for name in ("gain_V",) if layer.top else ():
            names.pop(name, None)
    of = RowsGradients if plan.spec.rows else None
    graphs: dict[str, Callable[[], object]] = {name: graph.replay for name, graph in instance.graphs.items()}
    return graphs | {"gradients": captured(torch.no_grad()(lambda: weight_gradients(plan, wanted, of)))}


def time_shape(B: int, H: int, norm: bool, rates: tuple[float, float, bool]) -> None:
    steps = {mode: Step(B, H, norm, rates, mode) for mode in ("dense", "rows")}
    runs: dict[str, Callable[[], object]] = {mode: captured(step) for mode, step in steps.items()}
    runs["nn.LSTM"] = lstm(B, H)
    say(B=B, H=H, norm=norm, rates=rates, **medians(runs))
    runs.clear()
    if not rates[2]:
        say(B=B, H=H, norm=norm, rates=rates, part="rows", **medians(parts(steps["rows"])))
    cuda.forget()
    torch.cuda.empty_cache()


def peak_memory(B: int, H: int, norm: bool) -> None:
    found = {}
    for mode in ("dense", "rows"):
        step = Step(B, H, norm, RATES[0], mode)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            step()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        found[mode] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
        del step
        cuda.forget()
    say(B=B, H=H, norm=norm, peak_MiB=found)


def profile(B: int, H: int, norm: bool, mode: str = "rows") -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    run = captured(Step(B, H, norm, RATES[0], mode))
    run(), run()
    torch.cuda.synchronize()
    with record(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    for row in sorted(found.key_averages(), key=lambda row: -row.device_time_total)[:14]:
        say(profile=f"{B}x{H}", mode=mode, ms=round(row.device_time_total / 1e3, 3), n=row.count,
            us=round(row.device_time, 1), kernel=row.key[:60])  # fmt: skip
    timeline(found, f"{B}x{H} {mode}")


def timeline(found: Any, name: str) -> None:
    """When the kernels of two steps in the middle of each pass began and ended, in µs."""
    events = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    for share in (0.3, 0.7):
        at = int(len(events) * share)
        begin = events[at].time_range.start
        text = [
            f"{e.name[:14]}@{e.time_range.start - begin:.1f}+{e.time_range.end - e.time_range.start:.1f}"
            for e in events[at : at + 26]
        ]
        say(timeline=name, at=share, events=" ".join(text))


def main() -> None:
    global seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=float, default=seconds)
    seconds = parser.parse_args().seconds
    say(device=torch.cuda.get_device_name(), torch=torch.__version__)
    for case, dtype in cases():
        attempt(check, case, dtype)
    for B, H in reversed(SHAPES):
        attempt(time_shape, B, H, False, RATES[0])
    attempt(profile, 512, 1024, False)
    attempt(peak_memory, 512, 1024, False)
    for rates, (B, H) in itertools.product(RATES[1:], reversed(SHAPES)):
        attempt(time_shape, B, H, False, rates)
    attempt(time_shape, 512, 1024, True, RATES[0])


if __name__ == "__main__":
    main()
