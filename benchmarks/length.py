"""Cost over length: seconds of a training step and of evaluation, and the memory evaluation needs, as texts grow.

    python benchmarks/length.py --lengths 100,1000,10000

Each length runs in a process of its own, whose largest resident size is what its evaluation needed. Times are of the
processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import torch

from hmrnn.config import ModelConfig
from hmrnn.evaluate import evaluate
from hmrnn.models import LanguageModel

SYMBOLS = 50


def measure(steps: int, hidden: int, batch: int) -> None:
    """Print what one length costs: evaluation first, because a training step keeps what grows with the length."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = LanguageModel(SYMBOLS, ModelConfig(hidden_size=(hidden,), embedding_size=32, output_size=hidden))
    symbols = np.random.default_rng(0).integers(SYMBOLS, size=steps * batch)
    evaluate(network, symbols[:1000], streams=batch)
    began = time.process_time()
    evaluate(network, symbols, streams=batch)
    evaluated, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    x = torch.from_numpy(symbols.reshape(steps, batch))
    began = time.process_time()
    logits, _, _ = network(x)
    torch.nn.functional.cross_entropy(logits[:-1].flatten(0, 1), x[1:].flatten()).backward()
    trained = time.process_time() - began
    print(
        f"{steps:7,} steps: training step {trained:8.3f} s, {1e3 * trained / steps:6.3f} ms a step; "
        f"evaluation {evaluated:8.3f} s, {1e3 * evaluated / steps:6.3f} ms a step, {peak:6.0f} MiB resident at most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="100,1000,10000", help="steps, separated by commas")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")]
    if len(lengths) == 1:
        measure(lengths[0], args.hidden, args.batch)
        return
    for length in lengths:
        options = ["--hidden", str(args.hidden), "--batch", str(args.batch)]
        subprocess.run([sys.executable, __file__, "--lengths", str(length), *options], check=True)


if __name__ == "__main__":
    main()
