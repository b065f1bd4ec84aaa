"""What bfloat16 weights gain and cost on a CPU, where a network reads a sequence symbol by symbol.

    python benchmarks/halves.py text.txt

``rnn.step`` at the rates of ``hmrnn bench`` takes turns with and without ``torch.autocast``: milliseconds of process
time, the best of all turns. Then the bits per character that bundled models need for a text, both ways.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import hmrnn
from hmrnn.cli import bench
from machine import environment

SIZES = (bench.STREAMED, bench.STREAMED._replace(hidden=1024))


def halved(yes: bool) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=yes)


def stepping(size: bench.Size, layer_norm: bool, repeats: int) -> dict[str, float]:
    rnn = hmrnn.HMLSTM(size.input, size.hidden, bench.LAYERS, layer_norm=layer_norm, **bench.HELD)
    x, z = torch.randn(size.steps, 1, size.input), bench.forced_boundaries(size)
    states, turns = {yes: rnn.initial_state(1) for yes in (False, True)}, {False: [], True: []}
    for _ in range(repeats):
        for yes, taken in turns.items():
            with halved(yes):
                states[yes] = rnn.step(x[0], states[yes]).state  # packs the weights, if it is the first
                start = time.process_time()
                for x_t, z_t in zip(x, z):
                    states[yes] = rnn.step(x_t, states[yes], boundaries=z_t).state
                taken.append((time.process_time() - start) / size.steps * 1e3)
    exact, half = min(turns[False]), min(turns[True])
    return {"float32": exact, "bfloat16": half, "speed-up": exact / half}


def bits(name: str, text: str) -> dict[str, float]:
    model, found = hmrnn.load(name), {}
    for yes in (False, True):
        with halved(yes):
            found["bfloat16" if yes else "float32"] = model.score(text).bits
    return found | {"symbols": len(text)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["english-small", "novel-small"])
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ms = {
        f"{size}{', layer norm' * norm}": stepping(size, norm, args.repeats) for size in SIZES for norm in (False, True)
    }
    of_text = {
        f"{Path(name).name}, {text.name}": bits(name, text.read_text()) for name in args.models for text in args.texts
    }
    print(json.dumps(environment("cpu") | {"repeats": args.repeats, "ms a step": ms, "bits": of_text}))


if __name__ == "__main__":
    main()
