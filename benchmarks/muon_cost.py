"""What the optimizer costs, as a share of an update: Adam and Muon, a run beside the other.

    python benchmarks/muon_cost.py demo                                  # the demo on a CPU
    python benchmarks/muon_cost.py enwik8 lstm ln-lstm hm-lstm --device cuda

For each network, three trainers with the same settings take turns, by 10 updates: one with Adam, one with Muon, one
whose optimizer does nothing. On a CPU the time is that of the process. Printed and written to ``--out``: the median of
the turns in milliseconds, and the optimizer's share of an update, as the median of the shares of each turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.kinds.text.presets import PRESETS
from hmrnn.training.trainer import Trainer
from machine import environment
from optimizers import config_of

UPDATES = 10


def seconds(work: Callable[[], Any], device: str) -> float:
    """Of one call: time of the process on a CPU, else until the GPU is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def measure(network: str, work: Path, device: str, turns: int) -> dict[str, Any]:
    """Milliseconds per update with each optimizer, and their shares."""
    if network == "demo":
        base = PRESETS["demo"]
        base = dataclasses.replace(base, train=dataclasses.replace(base.train, device=device))
    else:
        base = config_of(f"{network}:muon:0.004", work, device, toy=False)
    corpus, trainers = load_corpus(base.data), {}
    for name in ("none", "adam", "muon"):
        optimizer = "muon" if name == "muon" else "adam"
        config = dataclasses.replace(base, train=dataclasses.replace(base.train, optimizer=optimizer))
        trainers[name] = Trainer(config, corpus, torch.device(device))
    trainers["none"].optimizer.step = lambda: None
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(turns + 1):
        for name, trainer in trainers.items():
            taken = seconds(lambda trainer=trainer: [trainer.step() for _ in range(UPDATES)], device)
            if turn:  # the first compiles, and captures on a GPU
                times[name].append(1e3 * taken / UPDATES)
    shares = {
        name: median((one - none) / one for one, none in zip(times[name], times["none"])) for name in ("adam", "muon")
    }
    return {"milliseconds": {name: median(found) for name, found in times.items()}, "share": shares, "turns": turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="enwik8, or demo for the network and the text of the demo")
    parser.add_argument("networks", nargs="*", help="of benchmarks/optimizers.py")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = environment(args.device) | {"rows": {}}
    for network in args.networks or ["demo"]:
        row = measure(network, args.file.parent, args.device, args.turns)
        found["rows"][network] = row
        print(network, *(f"{name} {took:.3f} ms," for name, took in row["milliseconds"].items()),
              *(f"{name} {share:.1%}" for name, share in row["share"].items()), flush=True)  # fmt: skip
    if args.out:
        args.out.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
