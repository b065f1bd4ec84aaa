"""``hmrnn bench``: measure, print a table per case and mode, and write the tables, a JSON file and a plot."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from hmrnn.cli import measure
from hmrnn.cli.arguments import BenchArguments
from hmrnn.cli.display import print_table
from hmrnn.cli.measure import Case, Measurement
from hmrnn.plots.curves import bars
from hmrnn.plots.save import save_figure
from hmrnn.utils.devices import choose_device

SIZES = {"cpu": [(32, 64), (32, 128), (64, 512)], "cuda": [(64, 512), (128, 1024), (512, 1024)]}
STREAMED = [128, 512, 1024]
"""Hidden sizes of the mode stream, if no sizes are given."""
UNITS = {"train": "training step, ms", "forward": "forward, ms", "stream": "one symbol, batch 1, ms"}


def run(arguments: BenchArguments) -> int:
    device, out = arguments.device, Path(arguments.out)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    choose_device(device)
    out.parent.mkdir(parents=True, exist_ok=True)
    given = [(int(b), int(h)) for b, h in (size.split("x") for size in arguments.sizes)]
    norms = [False, True] if arguments.layer_norm else [False]
    engines = [*(("cuda", "cuda-rows") if device == "cuda" else ("auto",)), "reference"]
    console = Console(highlight=False, markup=False, record=True, width=None if sys.stdout.isatty() else 100)
    environment = measure.environment(device)
    console.print(", ".join(f"{key} {value}" for key, value in environment.items()), soft_wrap=True)
    found: list[Measurement] = []
    for mode in arguments.modes:
        for (batch, hidden), norm in itertools.product(_sizes(given, device, mode), norms):
            case = Case(batch, hidden, device=device, precision=arguments.precision, layer_norm=norm)
            part = measure.run(case, mode, arguments.repeats, engines, lambda line: console.print(line, soft_wrap=True))
            found += part
            _table(part, console)
    written = [out.with_name(f"{out.name}{end}") for end in (".txt", ".json", ".png")]
    written[0].write_text(console.export_text())
    record: dict[str, Any] = {"environment": environment, "measurements": [m.to_dict() for m in found]}
    written[1].write_text(json.dumps(record, indent=1) + "\n")
    save_figure(bars(_ratios(found), "times as fast as the fastest nn.LSTM"), written[2])
    print(f"wrote {', '.join(map(str, written))}")
    return 0


def _sizes(given: list[tuple[int, int]], device: str, mode: str) -> list[tuple[int, int]]:
    """(B, H) to measure: those given, or the usual ones; the mode stream has a batch of 1."""
    if mode == "stream":
        return [(1, hidden) for hidden in dict.fromkeys(h for _, h in given) or STREAMED]
    return given or SIZES[device]


def _table(part: list[Measurement], console: Console) -> None:
    lstm = _best_lstm({m.subject: m.median for m in part})
    rows = [
        (
            m.subject,
            f"{m.median:.2f}",
            f"{lstm / m.median:.2f}",
            f"{m.floor_milliseconds:.2f}",
            f"{m.median / m.floor_milliseconds:.1f}",
            "-" if m.peak_bytes is None else f"{m.peak_bytes / 2**20:,.0f}",
        )
        for m in part
    ]
    header = (UNITS[part[0].mode], "median", "x best nn.LSTM", "floor", "x floor", "peak MiB")
    print_table(f"\n{part[0].case}", header, rows, console)


def _best_lstm(medians: dict[str, float]) -> float:
    """The time of the fastest way to run nn.LSTM."""
    return min(median for subject, median in medians.items() if subject.startswith("nn.LSTM"))


def _ratios(found: list[Measurement]) -> dict[str, dict[str, float]]:
    """Speed relative to the fastest nn.LSTM by case and mode, then by subject."""
    groups: dict[str, dict[str, float]] = {}
    for m in found:
        group = groups.setdefault(f"{UNITS[m.mode].removesuffix(', ms')}\n{m.case}", {})
        group[m.subject] = m.median
    return {
        name: {subject: _best_lstm(group) / median for subject, median in group.items()}
        for name, group in groups.items()
    }
