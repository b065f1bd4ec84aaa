"""``hmrnn bench``: how fast the networks train and step on this machine, beside ``torch.nn.LSTM``.

Boundaries are forced at given rates, so that the results do not depend on what a random network detects; their gradient
still reaches the detectors, as in training.
"""

from __future__ import annotations

import dataclasses
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import benchmark

from hmrnn import __version__, ops
from hmrnn.analysis.sections import Section
from hmrnn.cli.arguments import BenchArguments
from hmrnn.cli.display import show
from hmrnn.config import KEEPING
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.lstm import LSTM, engine_of
from hmrnn.ops.cuda.captures import capturing
from hmrnn.utils.devices import choose_device

RATES = (0.21, 0.036)
"""Boundary rates of z¹ and z²; every boundary of level 2 is also one of level 1."""
LAYERS, SEED = 3, 0
HELD: dict[str, Any] = {**KEEPING, "on_copy": "hold"}
Work = Callable[[], object]


class Size(NamedTuple):
    """The sizes of a measurement; with T steps and an input of E numbers."""

    hidden: int
    batch: int
    steps: int
    input: int

    def __str__(self) -> str:
        return f"{LAYERS}×{self.hidden}, {self.batch}×{self.steps}"


SIZES = {
    "cpu": [Size(64, 32, 100, 64), Size(128, 64, 50, 64), Size(256, 32, 100, 128), Size(512, 64, 50, 128)],
    "cuda": [Size(512, 64, 100, 128), Size(1024, 128, 100, 128), Size(1024, 512, 100, 128)],
}
STREAMED = Size(512, 1, 100, 128)


class Subject(NamedTuple):
    """One way to do the work of a column."""

    column: str
    engine: str
    work: Work


def run(arguments: BenchArguments) -> int:
    choose_device(arguments.device)
    torch.set_num_threads(arguments.threads)
    with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "bf16"):
        show(_measured(arguments.device, arguments.repeats, arguments.precision), arguments.json)
    return 0


def _measured(device: str, repeats: int, precision: str) -> Iterator[Section]:
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)"
    about = {
        "hardware": cpu if device == "cpu" else torch.cuda.get_device_name(), "torch": str(torch.__version__),
        "hmrnn": __version__, "precision": precision,
    }  # fmt: skip
    yield Section(text=", ".join(f"{name} {value}" for name, value in about.items()))
    found = {}
    for size in SIZES[device]:
        found[str(size)] = in_turn(training(size, device), repeats, device)
        print(f"measured {size}", file=sys.stderr, flush=True)
    yield Section("ms of a training step (times as fast as nn.LSTM)", table=_table(found))
    streamed = in_turn(streaming(STREAMED, device), repeats, device, STREAMED.steps)
    record = {"environment": about, "training step": found, "symbol": streamed}
    yield Section("ms of a symbol, one after the other", table=_table({str(STREAMED): streamed}), record=record)


def in_turn(subjects: Iterator[Subject], repeats: int, device: str, steps: int = 1) -> dict[str, dict[str, Any]]:
    """For each column the best of ``repeats`` times, taken in turn, of its fastest subject: ms and engine."""
    made = list(subjects)
    for subject in made * (3 if device == "cuda" else 1):  # where a first call compiles, and a second one captures
        subject.work()
    best: dict[str, dict[str, Any]] = {}
    for column, engine, work in made * repeats:
        found = {"ms": _time(work, device) / steps, "engine": engine}
        best[column] = min(found, best.get(column, found), key=lambda one: one["ms"])
    return {column: one | {"speed": best["nn.LSTM"]["ms"] / one["ms"]} for column, one in best.items()}


def _table(found: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, ...]]:
    """A row for each network, a column for each size, and which engines ran."""
    rows: list[tuple[str, ...]] = [
        ("layers×units\nsequences×steps", *(size.replace(", ", "\n") for size in found), "engine")
    ]
    for name in next(iter(found.values())):
        cells = [columns[name] for columns in found.values()]
        shown = (f"{one['ms']:.{0 if one['ms'] >= 100 else 2}f} ({one['speed']:.2f})" for one in cells)
        rows.append((name, *shown, ", ".join(dict.fromkeys(cell["engine"] for cell in cells))))
    return rows


def training(size: Size, device: str) -> Iterator[Subject]:
    """A forward and a backward pass of each network."""
    torch.manual_seed(SEED)
    x = torch.randn(size.steps, size.batch, size.input, device=device)
    sizes = (size.input, size.hidden, LAYERS)
    theirs = nn.LSTM(*sizes, device=device)
    yield from _theirs(_step(theirs, partial(_top, theirs, x)), device)
    if device == "cuda":
        yield Subject("nn.LSTM", "cuDNN, CUDA graph", captured(_step(theirs, partial(_top, theirs, x))))
    for layer_norm in (False, True):
        lstm = LSTM(*sizes, layer_norm=layer_norm, device=device)
        name = f"hmrnn.nn.LSTM{', layer norm' if layer_norm else ''}"
        yield Subject(name, engine_of("auto", lstm.layers()[0]), _step(lstm, partial(_top, lstm, x)))
    z = forced_boundaries(size).to(device)
    cells: dict[str, dict[str, Any]] = {
        "HM-LSTM": HELD, "HM-LSTM, layer norm": HELD | {"layer_norm": True}, "the paper's cell": {},
    }  # fmt: skip
    for name, options in cells.items():
        rnn = HMLSTM(*sizes, **options, device=device)
        chosen = ops.choose_engine("auto", x.device, rnn.options(), x.dtype)
        yield Subject(name, chosen, _step(rnn, partial(_hidden, rnn, x, z)))


def _top(lstm: nn.Module, x: Tensor) -> Sequence[Tensor]:
    return [lstm(x)[0]]


def _hidden(rnn: HMLSTM, x: Tensor, z: Tensor) -> Sequence[Tensor]:
    """h of all layers with forced boundaries, whose gradient goes to the detectors."""
    options = dataclasses.replace(rnn.options(), straight_through=True)
    return ops.hmlstm(x, rnn.layers(), rnn.initial_state(x.shape[1]), options, boundaries=z).hidden


def _step(network: nn.Module, outputs: Callable[[], Sequence[Tensor]]) -> Work:
    gradients: list[Tensor] = []

    def work() -> None:
        for p in network.parameters():
            p.grad = None
        made = outputs()
        gradients[:] = gradients or [torch.randn_like(h) for h in made]
        torch.autograd.backward(made, gradients)

    return work


def streaming(size: Size, device: str) -> Iterator[Subject]:
    """One symbol after the other, batch 1: nn.LSTM as called, and ``rnn.step``."""
    torch.manual_seed(SEED)
    x = torch.randn(size.steps, size.batch, size.input, device=device)
    lstm = nn.LSTM(size.input, size.hidden, LAYERS, device=device)

    before: list[Any] = [None, None]  # where the next call goes on

    @torch.no_grad()
    def theirs() -> None:
        for x_t in x:
            _, before[0] = lstm(x_t[None], before[0])

    yield from _theirs(theirs, device)
    rnn = HMLSTM(size.input, size.hidden, LAYERS, **HELD, device=device)
    z = forced_boundaries(size).to(device)

    def ours() -> None:
        for x_t, z_t in zip(x, z):
            before[1] = rnn.step(x_t, before[1], boundaries=z_t).state

    yield Subject("rnn.step", ops.choose_engine("auto", x.device, rnn.options(), x.dtype), ours)


def forced_boundaries(size: Size, rates: tuple[float, ...] = RATES) -> Tensor:
    """(T, B, 2): z¹ at its rate, as exactly as whole numbers allow, and z² at its own among the boundaries of z¹."""
    generator = torch.Generator().manual_seed(SEED)
    rank = torch.randperm(size.steps * size.batch, generator=generator).view(size.steps, size.batch, 1)
    counts = torch.tensor([round(rate * rank.numel()) for rate in rates])
    return (rank < counts).float()


def _theirs(work: Work, device: str) -> Iterator[Subject]:
    """The ways to run nn.LSTM, of which the fastest counts: oneDNN is slow on some CPUs."""
    yield Subject("nn.LSTM", "oneDNN" if device == "cpu" else "cuDNN", work)
    if device == "cpu":
        yield Subject("nn.LSTM", "no oneDNN", partial(without_onednn, work))


def without_onednn(work: Work) -> None:
    """Do ``work`` with oneDNN switched off."""
    warnings.filterwarnings("ignore", message="TF32 acceleration")  # a warning of torch about the switch
    with torch.backends.mkldnn.flags(enabled=False):
        work()


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
    """Milliseconds of one call; on one thread, of the processor's time, which other programs disturb less."""
    alone = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else benchmark.timer  # which waits for the GPU
    began = clock()
    work()
    return 1e3 * (clock() - began)
