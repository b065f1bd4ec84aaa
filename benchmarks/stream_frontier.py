"""CPU time of one symbol at batch 1, for the networks of the frontier on enwik8: LN-LSTM and LN-HM-LSTM without FLUSH.

    OMP_NUM_THREADS=1 python benchmarks/stream_frontier.py --out stream-frontier

The recurrence alone, with an input of 128 numbers; boundaries are forced at the rates (0.19, 0.045). Weights are
random: the time does not depend on them. CPU time is measured, so that other processes of the machine count less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import machine
from hmrnn.cli import bench
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import State

RATES = (0.19, 0.045)
INPUT = 128
LSTMS = [256, 384, 512, 768, 1024]
HIERARCHIES = [(384, 512, 512), (576, 768, 768), (768, 1024, 1024), (960, 1280, 1280)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="stream-frontier", help="path of the JSON file, without its ending")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(bench.SEED)
    x = torch.randn(args.steps, 1, INPUT)
    z = bench.forced_boundaries(bench.Size(1, 1, args.steps, INPUT), RATES)
    # a layer of an LN-LSTM is an HM-LSTM of one layer: both networks run the same code
    networks: dict[str, list[HMLSTM]] = {}
    for H in LSTMS:
        networks[f"LN-LSTM 3x{H}"] = [HMLSTM(size, H, 1, layer_norm=True) for size in (INPUT, H, H)]
    for sizes in HIERARCHIES:
        whole = HMLSTM(INPUT, sizes, 3, layer_norm=True, flush=False, top_down="pending")
        networks[f"LN-HM-LSTM {'/'.join(map(str, sizes))}"] = [whole]

    def stream(name: str, steps: int) -> float:
        """Milliseconds of CPU time per symbol."""
        parts = networks[name]
        states: list[State | None] = [None] * len(parts)
        began = time.process_time()
        for t in range(steps):
            h = x[t]
            for l, rnn in enumerate(parts):
                states[l] = state = rnn.step(h, states[l], z[t] if rnn.num_layers > 1 else None).state
                h = state.h[-1]
        return 1e3 * (time.process_time() - began) / steps

    for name in networks:
        stream(name, min(5, args.steps))
    times: dict[str, list[float]] = {name: [] for name in networks}
    for _ in range(args.repeats):
        for name in networks:
            times[name].append(stream(name, args.steps))
    found = [{"model": name, "cpu_ms": statistics.median(t), "all_ms": t} for name, t in times.items()]
    for row in found:
        print(f"{row['model']:32} {row['cpu_ms']:.3f} ms")
    about = machine.environment("cpu") | {"rates": RATES, "steps": args.steps}
    Path(f"{args.out}.json").write_text(json.dumps({"about": about, "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
