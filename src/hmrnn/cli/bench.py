"""``hmrnn bench``: how fast the networks train and step on this machine, beside ``torch.nn.LSTM``.

Boundaries are forced at given rates, so that the results do not depend on what a random network detects; their gradient
still reaches the detectors, as in training.
"""

from __future__ import annotations

import dataclasses
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import benchmark

from hmrnn import __version__, ops
from hmrnn.analysis.sections import Section
from hmrnn.cli.arguments import BenchArguments
from hmrnn.cli.display import show
from hmrnn.cli.terminal import warn
from hmrnn.config import KEEPING
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.nn.lstm import LSTM, engine_of
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


STREAMED = Size(512, 1, 100, 128)
SIZES = {
    "cpu": [Size(64, 32, 100, 64), Size(128, 64, 50, 64), Size(256, 32, 100, 128), Size(512, 64, 50, 128), STREAMED],
    "cuda": [Size(512, 64, 100, 128), Size(1024, 128, 100, 128), Size(1024, 512, 100, 128), STREAMED],
}


class Subject(NamedTuple):
    """One way to do the work of a row."""

    row: str
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
        made = streaming(size, device) if size.batch == 1 else training(size, device)
        found[str(size)] = in_turn(made, repeats, device)
        warn(f"measured {size}")
    title = "ms of a training step, or of a single sequence that is read symbol by symbol (times as fast as nn.LSTM)"
    yield Section(title, table=_table(found), record={"environment": about, "ms": found})


def in_turn(subjects: Iterator[Subject], repeats: int, device: str) -> dict[str, dict[str, Any]]:
    """For each row the best of ``repeats`` times, taken in turn, of its fastest subject: ms and engine."""
    made = list(subjects)
    for subject in made * (3 if device == "cuda" else 1):  # where a first call compiles, and a second one captures
        subject.work()
    best: dict[str, dict[str, Any]] = {}
    for row, engine, work in made * repeats:
        found = {"ms": _time(work, device), "engine": engine}
        best[row] = min(found, best.get(row, found), key=lambda one: one["ms"])
    return {row: one | {"speed": best["nn.LSTM"]["ms"] / one["ms"]} for row, one in best.items()}


def _table(found: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, ...]]:
    """A row for each network, a column for each size, and which engines ran."""
    rows: list[tuple[str, ...]] = [
        ("layers×units\nsequences×steps", *(size.replace(", ", "\n") for size in found), "engine")
    ]
    for name in next(iter(found.values())):
        cells = {size: column[name] for size, column in found.items() if name in column}
        shown = {size: f"{one['ms']:.4g} ({one['speed']:.2f})" for size, one in cells.items()}
        engines = dict.fromkeys(one["engine"] for one in cells.values())
        rows.append((name, *(shown.get(size, "") for size in found), ", ".join(engines)))
    return rows


def training(size: Size, device: str) -> Iterator[Subject]:
    """A forward and a backward pass of each network."""
    torch.manual_seed(SEED)
    x = torch.randn(size.steps, size.batch, size.input, device=device)
    sizes = (size.input, size.hidden, LAYERS)
    theirs = nn.LSTM(*sizes, device=device)
    yield from _theirs(_step(theirs, lambda network: network(x)[:1]), device)
    for layer_norm in (False, True):
        lstm = LSTM(*sizes, layer_norm=layer_norm, device=device)
        name = f"hmrnn.nn.LSTM{', layer norm' if layer_norm else ''}"
        yield Subject(name, engine_of("auto", lstm.layers()[0]), _step(lstm, lambda network: network(x)[:1]))
    z = forced_boundaries(size).to(device)
    cells: dict[str, dict[str, Any]] = {
        "HM-LSTM": HELD, "HM-LSTM, layer norm": HELD | {"layer_norm": True}, "the paper's cell": {},
    }  # fmt: skip
    for name, options in cells.items():
        rnn = HMLSTM(*sizes, **options, device=device)
        chosen = ops.choose_engine("auto", x.device, rnn.options(), x.dtype)
        yield Subject(name, chosen, _step(rnn, lambda network: _hidden(network, x, z)))


def _hidden(rnn: HMLSTM, x: Tensor, z: Tensor) -> Sequence[Tensor]:
    """h of all layers with forced boundaries, whose gradient goes to the detectors."""
    options = dataclasses.replace(rnn.options(), straight_through=True)
    return ops.hmlstm(x, rnn.layers(), rnn.initial_state(x.shape[1]), options, boundaries=z).hidden


def _step(network: nn.Module, outputs: Callable[[Any], Sequence[Tensor]]) -> Work:
    gradients: list[Tensor] = []

    def work() -> None:
        network.zero_grad()
        made = outputs(network)
        gradients[:] = gradients or [torch.randn_like(h) for h in made]
        torch.autograd.backward(made, gradients)

    return work


def streaming(size: Size, device: str) -> Iterator[Subject]:
    """One symbol after the other, batch 1, each call from where the last ended: nn.LSTM as called, and ``rnn.step``."""
    torch.manual_seed(SEED)
    x = torch.randn(size.steps, size.batch, size.input, device=device)
    lstm = nn.LSTM(size.input, size.hidden, LAYERS, device=device)
    before: list[Any] = [None, None]

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

    yield Subject("HM-LSTM", ops.choose_engine("auto", x.device, rnn.options(), x.dtype), ours)


def forced_boundaries(size: Size, rates: tuple[float, ...] = RATES) -> Tensor:
    """(T, B, 2): z¹ at its rate, as exactly as whole numbers allow, and z² at its own among the boundaries of z¹."""
    generator = torch.Generator().manual_seed(SEED)
    rank = torch.randperm(size.steps * size.batch, generator=generator).view(size.steps, size.batch, 1)
    counts = torch.tensor([round(rate * rank.numel()) for rate in rates])
    return (rank < counts).float()


def _theirs(work: Work, device: str) -> Iterator[Subject]:
    """The ways to run nn.LSTM, of which the fastest counts: oneDNN is slow on some CPUs."""
    yield Subject("nn.LSTM", "oneDNN" if device == "cpu" else "cuDNN", work)

    def without_onednn() -> None:
        with torch.backends.mkldnn.flags(enabled=False):
            work()

    if device == "cpu":
        warnings.filterwarnings("ignore", message="TF32 acceleration")  # a warning of torch about the switch
        yield Subject("nn.LSTM", "no oneDNN", without_onednn)


def _time(work: Work, device: str) -> float:
    """Milliseconds of one call; on one thread, of the processor's time, which other programs disturb less."""
    alone = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else benchmark.timer  # which waits for the GPU
    began = clock()
    work()
    return 1e3 * (clock() - began)
