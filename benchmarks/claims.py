"""Figures of the documents that belong to no table of results, measured again on this machine, on one CPU core.

    python benchmarks/claims.py                # all of them, in about two minutes
    python benchmarks/claims.py sixteen-bits   # one

Each becomes a line of ``results/claims.jsonl`` with hardware, versions, commit and date.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import hmrnn
from machine import environment

ROOT = Path(__file__).parents[1]
INTO = ROOT / "results" / "claims.jsonl"
LAYERS = 3


def sixteen_bits() -> list[dict[str, Any]]:
    """Decisions of fresh detectors that 16 bits change over 200 steps, as shares; three seeds, batches of 4."""
    rows = []
    for dtype in (torch.float16, torch.bfloat16):
        changed = []
        for seed in range(3):
            torch.manual_seed(seed)
            rnn = hmrnn.HMLSTM(128, 128, num_layers=LAYERS, layer_norm=True)
            x = torch.randn(200, 4, 128)
            with torch.no_grad():
                whole = rnn(x)[0].boundaries
                half = rnn.to(dtype)(x.to(dtype))[0].boundaries
            changed.append((whole != half.float()).float().mean((0, 1)))
        rows.append({"dtype": str(dtype).removeprefix("torch."), "changed": torch.stack(changed).mean(0).tolist()})
    return rows


def gradient_norms() -> list[dict[str, Any]]:
    """Of the whole gradient of fresh weights with layer norm, by the number of steps and what U's and V's gains are."""
    rows = []
    for gain in (1.0, 0.1):
        for steps in (50, 100, 200):
            norms = []
            for seed in (0, 1):
                torch.manual_seed(seed)
                rnn = hmrnn.HMLSTM(128, 128, num_layers=LAYERS, layer_norm=True)
                with torch.no_grad():
                    for w in rnn.layers():
                        for of in (w.gain_U, w.gain_V):
                            if of is not None:
                                of.fill_(gain)
                x, target = torch.randn(steps, 16, 128), torch.randn(steps, 16, 128)
                (rnn(x)[0].hidden[-1] - target).pow(2).mean().backward()
                norms.append(float(torch.stack([p.grad.double().norm() for p in rnn.parameters()]).norm()))
            rows.append({"gain": gain, "steps": steps, "norms of seeds 0 and 1": norms})
    return rows


CLAIMS = {
    "sixteen-bits": sixteen_bits,
    "gradient-norms": gradient_norms,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"what to measure, of {', '.join(CLAIMS)}; all if none is given")
    wanted = parser.parse_args().names or list(CLAIMS)
    unknown = [name for name in wanted if name not in CLAIMS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(CLAIMS)}")
    torch.set_num_threads(1)
    lines = {line["name"]: line for line in map(json.loads, INTO.read_text().splitlines())}
    for name in wanted:
        about = environment("cpu")
        found = CLAIMS[name]()
        lines[name] = {"name": name, "found": {"about": about, "found": found}}
        INTO.write_text("".join(json.dumps(lines[key]) + "\n" for key in sorted(lines)))
        print(name, *found, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
