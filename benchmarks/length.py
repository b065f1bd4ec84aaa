"""Cost over length: time of a training step and of evaluation, and the memory evaluation needs, as texts grow.

    python benchmarks/length.py --lengths 100,1000,10000 --out length
    python benchmarks/length.py --device cuda --precision bf16

The training step reads the whole length at once, forwards and backwards; evaluation reads it in chunks, as ``hmrnn
evaluate`` does. Each length runs in a process of its own. On a CPU times are of the processor, so that other work on
the machine does not count, and memory is the largest resident size. On a GPU memory is what torch allocated at most;
there the engine launches a shape it meets for the first time, captures it when it comes back, and replays it from then
on: all three are shown, with all the memory the GPU has lent at the end, which includes the captured graphs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine
from hmrnn.cli.display import print_table
from hmrnn.config import ModelConfig
from hmrnn.kinds.text.evaluate import evaluate
from hmrnn.kinds.text.network import LanguageModel

SYMBOLS = 50
DEFAULTS = {"cpu": ("100,1000,10000", 128, 4), "cuda": ("100,300,1000,3000,10000", 512, 16)}
"""By device: lengths, hidden size, batch."""


def measure(steps: int, args: argparse.Namespace) -> dict[str, Any]:
    """What one length costs: evaluation first, because a training step keeps what grows with the length."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ModelConfig(hidden_size=(args.hidden,), embedding_size=32, output_size=args.hidden)
    network = LanguageModel(SYMBOLS, config).to(args.device)
    symbols = np.random.default_rng(0).integers(SYMBOLS, size=steps * args.batch + 1)
    how: dict[str, Any] = {"streams": args.batch, "precision": args.precision}
    evaluate(network, np.resize(symbols, 300 * args.batch + 1), **how)
    started = _allocated(args.device)
    seconds = _seconds(lambda: evaluate(network, symbols, **how), args.device)
    found = {"steps": steps, "evaluation_s": seconds, "evaluation_peak_mib": _peak(args.device) - started}

    x = torch.from_numpy(symbols[1:].reshape(steps, args.batch)).to(args.device)
    autocast = torch.autocast(args.device, torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()

    def train() -> None:
        network.zero_grad(set_to_none=True)
        with autocast:
            (logits,), _, _ = network(x)
        torch.nn.functional.cross_entropy(logits[:-1].flatten(0, 1).float(), x[1:].flatten()).backward()

    _allocated(args.device)
    times = [_seconds(train, args.device) for _ in range(1 if args.device == "cpu" else 6)]
    found |= {"training_s": statistics.median(times[2:] or times), "training_peak_mib": _peak(args.device)}
    if args.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        found |= {"first_call_s": times[0], "capture_s": times[1], "lent_by_gpu_mib": (total - free) / 2**20}
    return found


def _seconds(work: Callable[[], object], device: str) -> float:
    if device == "cpu":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _allocated(device: str) -> float:
    """MiB in use now, from where the next peak is taken; a resident size counts from zero."""
    if device == "cpu":
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 2**20


def _peak(device: str) -> float:
    """MiB at most: resident since the process began, or allocated since the last :func:`_allocated`."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return torch.cuda.max_memory_allocated() / 2**20


def row(m: dict[str, Any]) -> tuple[str, ...]:
    shown = [
        f"{m['steps']:,}", f"{m['training_s']:.3f}", f"{1e6 * m['training_s'] / m['steps']:.0f}",
        f"{m['training_peak_mib']:,.0f}", f"{m['evaluation_s']:.3f}", f"{1e6 * m['evaluation_s'] / m['steps']:.0f}",
        f"{m['evaluation_peak_mib']:,.0f}",
    ]  # fmt: skip
    if "capture_s" in m:
        shown += [f"{m['first_call_s']:.2f}", f"{m['capture_s']:.2f}", f"{m['lent_by_gpu_mib']:,.0f}"]
    return tuple(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEFAULTS, default="cpu")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--lengths", help="steps, separated by commas (CPU: 100,1000,10000)")
    parser.add_argument("--hidden", type=int, help="size of each of three layers (CPU: 128, GPU: 512)")
    parser.add_argument("--batch", type=int, help="sequences side by side (CPU: 4, GPU: 16)")
    parser.add_argument("--out", type=Path, help="also write OUT.json")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths, hidden, batch = DEFAULTS[args.device]
    args.hidden, args.batch = args.hidden or hidden, args.batch or batch
    if args.one is not None:
        print(json.dumps(measure(args.one, args)))
        return
    measured = []
    for length in map(int, (args.lengths or lengths).split(",")):
        shape = ["--hidden", str(args.hidden), "--batch", str(args.batch)]
        command = [sys.executable, __file__, "--one", str(length), *shape, "--device", args.device]
        done = subprocess.run([*command, "--precision", args.precision], check=True, stdout=subprocess.PIPE, text=True)
        measured.append(json.loads(done.stdout.splitlines()[-1]))
    environment = machine.environment(args.device)
    print(", ".join(f"{key} {value}" for key, value in environment.items()))
    header: tuple[str, ...] = (
        "steps",
        "training, s",
        "µs a step",
        "peak MiB",
        "evaluation, s",
        "µs a step",
        "peak MiB",
    )
    if args.device == "cuda":
        header += ("first call, s", "capture, s", "GPU lent, MiB")
    title = f"B={args.batch} H={args.hidden}, 3 layers, layer norm, {args.precision} on {args.device}"
    print_table(title, header, [row(m) for m in measured])
    if args.out is not None:
        record = {"environment": environment, "case": title, "measurements": measured}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
