"""What a second thread gains on a CPU, from the processor's time alone, so that other programs disturb it little.

    python benchmarks/threads.py 512,64,50,128 128,64,50,64      # hidden units, sequences, steps, inputs

A training step of the networks of ``hmrnn bench`` takes turns with one thread and with two. Two threads are as fast as
the one that works longer: ``speed-up`` is the time with one thread beside that, best of all turns, and cannot exceed 2.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from hmrnn.cli import bench
from machine import environment

ROWS = ("hmrnn.nn.LSTM", "HM-LSTM", "HM-LSTM, layer norm")


def spent(work: bench.Work, threads: int) -> tuple[float, float]:
    """Milliseconds of a call: of all threads together, and of the one that works longer."""
    torch.set_num_threads(threads)
    whole, own = time.process_time(), time.thread_time()
    work()
    own, whole = time.thread_time() - own, time.process_time() - whole
    return 1e3 * whole, 1e3 * max(own, whole - own)


def measure(size: bench.Size, repeats: int) -> dict[str, Any]:
    """Of each network what one thread and two take."""
    works = {subject.row: subject.work for subject in bench.training(size, "cpu") if subject.row in ROWS}
    found = {}
    for row, work in works.items():
        work()
        turns = [(spent(work, 1)[0], spent(work, 2)) for _ in range(repeats)]
        one, longer = min(one for one, _ in turns), min(longer for _, (_, longer) in turns)
        both = min(whole for _, (whole, _) in turns)
        found[row] = {"one": one, "two together": both, "the longer": longer, "speed-up": one / longer}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+")
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    sizes = [bench.Size(*map(int, text.split(","))) for text in args.sizes]
    rows = {str(size): measure(size, args.repeats) for size in sizes}
    print(json.dumps(environment("cpu") | {"repeats": args.repeats, "rows": rows}))


if __name__ == "__main__":
    main()
