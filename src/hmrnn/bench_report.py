"""What ``hmrnn bench`` makes of its measurements: a table, a JSON file and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hmrnn import bench, figures
from hmrnn.bench import Case, Measurement
from hmrnn.display import print_table

SIZES = {"cpu": [(64, 512)], "cuda": [(64, 512), (128, 1024), (512, 1024)]}
UNITS = {"train": "training step, ms", "forward": "forward, ms", "stream": "one symbol, batch 1, ms"}


def main(
    device: str,
    precision: str,
    modes: tuple[str, ...],
    sizes: tuple[str, ...],
    repeats: int,
    layer_norm: bool,
    out: Path,
) -> int:
    """Measure, print a table per case and mode, and write ``out``.json and ``out``.png."""
    shapes = [(int(b), int(h)) for b, h in (size.split("x") for size in sizes)] or SIZES[device]
    cases = [Case(b, h, device=device, precision=precision, layer_norm=norm) for b, h in shapes for norm in
             ([False, True] if layer_norm else [False])]  # fmt: skip
    engines = ["cuda" if device == "cuda" else "sparse", "reference"]
    environment = bench.environment(device)
    print(", ".join(f"{key} {value}" for key, value in environment.items()))
    found: list[Measurement] = []
    for case in cases:
        for mode in modes:
            part = list(bench.run([case], [mode], repeats, engines, print))
            found += part
            _table(part)
    out.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"environment": environment, "measurements": [m.to_dict() for m in found]}
    out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    figures.save(figures.bars(_ratios(found), "times as fast as nn.LSTM"), out.with_suffix(".png"))
    print(f"wrote {out.with_suffix('.json')} and {out.with_suffix('.png')}")
    return 0


def _table(part: list[Measurement]) -> None:
    lstm = next(m for m in part if m.subject == "nn.LSTM").median
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
    header = (UNITS[part[0].mode], "median", "x nn.LSTM", "floor", "x floor", "peak MiB")
    print_table(f"\n{part[0].case}", header, rows)


def _ratios(found: list[Measurement]) -> dict[str, dict[str, float]]:
    """Speed relative to nn.LSTM by case and mode, then by subject."""
    groups: dict[str, dict[str, float]] = {}
    for m in found:
        group = groups.setdefault(f"{UNITS[m.mode].removesuffix(', ms')}\n{m.case}", {})
        group[m.subject] = m.median
    return {
        name: {subject: group["nn.LSTM"] / median for subject, median in group.items()}
        for name, group in groups.items()
    }
