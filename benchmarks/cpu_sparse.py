"""The sparse engine against torch.nn.LSTM on a CPU: one training step (forward and backward), interleaved.

    OMP_NUM_THREADS=1 python benchmarks/cpu_sparse.py --rates 0.4,0.1 --rates 0.21,0.033

Boundaries are forced at the given rates, and with straight_through their gradients reach the detectors all the same, so
that nothing is skipped that training needs. Both networks read the same input, which takes a gradient as an embedding's
output does; ``symbols`` gives the sparse engine the indices and the embedding instead. nn.LSTM runs as users call it
and, as ``lstm, no mkldnn``, without the oneDNN layer, whichever is the faster on the machine at hand.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from hmrnn.cli import measure as bench
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import Options, Symbols, reference
from hmrnn.ops.sparse import forward as sparse

warnings.filterwarnings("ignore", message="TF32 acceleration")


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def show_profile(name: str, run: Callable[[], None]) -> None:
    """The operations of a step, by the time they take themselves."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_cpu_time_total)
    whole = sum(row.self_cpu_time_total for row in rows)
    print(f"\n{name}: {whole / 1e6:.3f} s under the profiler")
    for row in rows[:15]:
        own = row.self_cpu_time_total
        print(f"{own / 1e3:9.1f} ms  {own / whole:5.1%}  {row.count:6d} x  {row.key[:60]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", action="append", help="boundary rates of the lower layers, as 0.4,0.1; repeatable")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layer-norm", action="store_true")
    parser.add_argument("--forward", action="store_true", help="measure the forward pass without gradients instead")
    parser.add_argument("--reference", action="store_true", help="measure the reference engine too")
    parser.add_argument("--profile", action="store_true", help="then say where the time of each sparse step goes")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    T, B, H, E, symbols = args.steps, args.batch, args.hidden, args.embedding, 50

    embedding = torch.randn(symbols, E, requires_grad=True)
    indices = torch.randint(symbols, (T, B))
    x = embedding.detach()[indices].requires_grad_()
    weight = torch.randn(T, B, H)
    rnn, lstm = HMLSTM(E, H, 3, layer_norm=args.layer_norm), torch.nn.LSTM(E, H, 3)
    parameters = [x, embedding, *rnn.parameters(), *lstm.parameters()]

    def train(output: Callable[[], Tensor]) -> None:
        for p in parameters:
            p.grad = None
        if args.forward:
            with torch.no_grad():
                output()
        else:
            (output() * weight).sum().backward()

    def run_lstm(mkldnn: bool) -> Tensor:
        with torch.backends.mkldnn.flags(enabled=mkldnn):
            return lstm(x)[0]

    runs: dict[str, Callable[[], Tensor]] = {
        "lstm": lambda: run_lstm(True),
        "lstm, no mkldnn": lambda: run_lstm(False),
    }
    for rates in args.rates or ["0.4,0.1", "0.21,0.033"]:
        lower, upper = map(float, rates.split(","))
        forced = bench.forced_boundaries(bench.Case(B, H, T), (lower, upper))
        options = Options(on_copy="evaluate", straight_through=True)

        def run(engine: object, symbolic: bool, forced: Tensor = forced, options: Options = options) -> Tensor:
            inputs = Symbols(indices, embedding) if symbolic else x
            result = engine.hmlstm(inputs, rnn.layers(), rnn.initial_state(B), options, boundaries=forced)  # type: ignore[attr-defined]
            return sum(result.hidden[1:], start=result.hidden[0])

        runs[f"sparse {rates}"] = lambda run=run: run(sparse, False)
        runs[f"sparse {rates}, symbols"] = lambda run=run: run(sparse, True)
        if args.reference:
            runs[f"reference {rates}"] = lambda run=run: run(reference, False)

    print(", ".join(f"{name} {value}" for name, value in bench.environment("cpu").items()))
    for run in runs.values():  # the first call of each is not timed
        train(run)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.repeats):
        for name, run in runs.items():
            times[name].append(seconds(lambda run=run: train(run)))
    medians = {name: statistics.median(t) for name, t in times.items()}
    for name, median in medians.items():
        ratios = [f"{medians[base] / median:5.2f} x {base}" for base in ("lstm", "lstm, no mkldnn") if base in medians]
        print(f"{name:32} {median:7.3f} s (best {min(times[name]):7.3f})  {'  '.join(ratios)}")
    for name, run in runs.items() if args.profile else ():
        if name.startswith("sparse"):
            show_profile(name, lambda run=run: train(run))


if __name__ == "__main__":
    main()
