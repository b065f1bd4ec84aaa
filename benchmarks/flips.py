"""How often a detector decides otherwise than in exact arithmetic: what a lower precision does to boundaries.

    python benchmarks/flips.py --device cuda --model runs/ptb --out flips
    python benchmarks/flips.py --hidden 128 --batch 16

A boundary is discrete, so a rounding error either changes nothing or turns a 0 into a 1. After such a flip the network
reads on in another state and comes to other boundaries, rightly so: the text is then cut elsewhere. Hence two rates for
each detector, both against the reference in float64:

- one step: every step starts from the state that the reference had there, and layers below have its boundaries. This
  is how often arithmetic alone turns a decision;
- free: both read the same sequence by themselves. This also counts all that follows from a flip.

Fresh weights are random, without and with layer norm, and read random numbers; a model (a run directory) reads the
validation part of the data it was trained on.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import machine
from hmrnn import InputError, ops
from hmrnn.cli import bench
from hmrnn.cli.display import print_table
from hmrnn.kinds.text.corpus import load_corpus
from hmrnn.nn.hmlstm import HMLSTM
from hmrnn.ops import State, reference
from hmrnn.pretrained.load import load

ENGINES = {
    "cpu": {"float32": "native", "bf16": "reference"},
    "cuda": {"float32": "cuda", "tf32": "cuda", "bf16": "cuda"},
}
"""By device: precisions, and the engine that runs them."""
INPUT = 128


@dataclasses.dataclass
class Problem:
    """A network in float32 and what it reads."""

    name: str
    rnn: HMLSTM
    x: Tensor  # (T, B, size)


@dataclasses.dataclass
class Exact:
    """What the reference does in float64, and where each step started from."""

    before: State  # of T · B rows
    boundaries: Tensor  # (T, B, detectors)
    probabilities: Tensor  # (T, B, detectors)
    decides: Tensor  # (T, B, detectors): False where "hold" keeps z at 0 on COPY, whatever the detector says


@dataclasses.dataclass
class Flips:
    """What one precision made of all draws of one kind of weights."""

    weights: str
    engine: str
    precision: str
    decisions: int = 0
    """Of each detector."""
    boundaries: list[float] = dataclasses.field(default_factory=list)
    """How many each detector finds in float64; below, how many decisions were others."""
    one_step: list[float] = dataclasses.field(default_factory=list)
    free: list[float] = dataclasses.field(default_factory=list)
    largest_error: float = 0.0
    """Of z̃ after one step."""
    first: list[float] = dataclasses.field(default_factory=list)
    """For each sequence the steps before its first flip; all of them if there is none."""
    without: int = 0
    """Sequences in which nothing flips."""

    def add(self, exact: Exact, one_step: Tensor, free: Tensor, error: float) -> None:
        T, B, _ = free.shape
        self.decisions += T * B
        for name, new in (("boundaries", exact.boundaries), ("one_step", one_step), ("free", free)):
            counts = new.double().sum((0, 1)).tolist()
            setattr(self, name, [a + b for a, b in zip(getattr(self, name) or [0.0] * len(counts), counts)])
        self.largest_error = max(self.largest_error, error)
        any_flip = free.any(-1)  # (T, B)
        self.first += torch.where(any_flip.any(0), any_flip.int().argmax(0), T).tolist()
        self.without += int((~any_flip.any(0)).sum())

    def to_dict(self) -> dict[str, Any]:
        rates = {name: [n / self.decisions for n in getattr(self, name)] for name in ("boundaries", "one_step", "free")}
        median = sorted(self.first)[len(self.first) // 2]
        return {
            "weights": self.weights, "engine": self.engine, "precision": self.precision, "decisions": self.decisions,
            "boundary_rates": rates["boundaries"], "one_step_flip_rates": rates["one_step"],
            "free_running_disagreement": rates["free"], "largest_error_of_probability": self.largest_error,
            "sequences": len(self.first), "sequences_without_a_flip": self.without,
            "median_steps_before_first_flip": None if 2 * self.without > len(self.first) else median,
        }  # fmt: skip


def problems(args: argparse.Namespace) -> Iterator[Problem]:
    """All draws, those of one kind of weights in a row."""
    models = [load(directory, device=args.device) for directory in args.model]
    for norm in (False, True):
        for draw in range(args.draws):
            torch.manual_seed(draw)
            fresh = HMLSTM(INPUT, args.hidden, bench.LAYERS, layer_norm=norm)
            x = torch.randn(args.steps, args.batch, INPUT)
            yield Problem("fresh, layer norm" if norm else "fresh", fresh.to(args.device), x.to(args.device))
    for directory, model in zip(args.model, models):
        rnn, valid, size = model.network.rnn, load_corpus(model.config.data).valid, args.steps * args.batch
        if not isinstance(rnn, HMLSTM) or rnn.boundary == "soft":
            raise InputError(f"{directory} must hold an HM-LSTM whose boundaries are 0 or 1; choose another --model")
        draws = min(args.draws, len(valid) // size)
        if draws == 0:
            raise InputError(
                f"{directory} has {len(valid):,} symbols to validate on; lower --steps x --batch = {size:,}"
            )
        symbols = torch.from_numpy(valid[: draws * size].astype("int64"))
        for part in symbols.view(draws, args.batch, args.steps).transpose(1, 2).to(args.device):
            yield Problem(f"trained, {Path(directory).name}", rnn, model.network.embedding(part).detach())


@torch.no_grad()
def run_exactly(given: Problem) -> Exact:
    rnn = copy.deepcopy(given.rnn).double()
    state, steps = rnn.initial_state(given.x.shape[1]), []
    for x in given.x.double():
        result = reference.hmlstm(x[None], rnn.layers(), state, rnn.options())
        fed = torch.cat([torch.ones_like(state.z[:, :1]), result.boundaries[0, :, :-1]], dim=1)
        steps.append((state, result.boundaries[0], result.probabilities[0], (state.z + fed) > 0))
        state = result.state
    before, boundaries, probabilities, moves = zip(*steps)
    h, c = ([torch.cat(parts) for parts in zip(*(getattr(s, kind) for s in before))] for kind in "hc")
    return Exact(
        State(tuple(h), tuple(c), torch.cat([s.z for s in before])),
        torch.stack(boundaries),
        torch.stack(probabilities),
        torch.stack(moves) if rnn.on_copy == "hold" else torch.ones_like(torch.stack(moves)),
    )


@torch.no_grad()
def compare(given: Problem, exact: Exact, into: Flips) -> None:
    """Run the engine freely over the sequence, and once over all its steps side by side."""
    rnn, (T, B) = given.rnn, given.x.shape[:2]

    def run(x: Tensor, state: State, boundaries: Tensor | None = None) -> ops.Result:
        with arithmetic(into.precision, given.x.device.type):
            return ops.hmlstm(x, rnn.layers(), state, rnn.options(), boundaries=boundaries, engine=into.engine)

    free = run(given.x, rnn.initial_state(B)).boundaries != exact.boundaries
    h, c = (tuple(a.float() for a in part) for part in (exact.before.h, exact.before.c))
    forced = exact.boundaries.float().flatten(0, 1)[None]
    found = (
        run(given.x.flatten(0, 1)[None], State(h, c, exact.before.z.float()), forced)
        .probabilities.view(T, B, -1)
        .double()
    )
    turned = ((found > 0.5) != (exact.probabilities > 0.5)) & exact.decides
    into.add(exact, turned, free, (found - exact.probabilities).abs().max().item())


@contextlib.contextmanager
def arithmetic(precision: str, device: str) -> Iterator[None]:
    """As training with that precision computes."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def shown(rates: list[float]) -> str:
    return ", ".join("0" if rate == 0 else f"{100 * rate:.2g} %" for rate in rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=ENGINES, default="cpu")
    parser.add_argument("--hidden", type=int, default=512, help="size of each of three layers with fresh weights")
    parser.add_argument("--batch", type=int, default=64, help="sequences of a draw")
    parser.add_argument("--steps", type=int, default=100, help="their length")
    parser.add_argument("--draws", type=int, default=4, help="fresh weights drawn, or parts of the text read")
    parser.add_argument("--model", action="append", default=[], help="run directory of a model of text; repeatable")
    parser.add_argument("--out", type=Path, help="also write OUT.json")
    args = parser.parse_args()
    found: dict[tuple[str, str], Flips] = {}
    for given in problems(args):
        exact = run_exactly(given)
        for precision, engine in ENGINES[args.device].items():
            flips = found.setdefault((given.name, precision), Flips(given.name, engine, precision))
            compare(given, exact, flips)
    measured = [flips.to_dict() for flips in found.values()]
    rows = [
        (
            m["weights"], f"{m['engine']} {m['precision']}", f"{m['decisions']:,}", shown(m["boundary_rates"]),
            shown(m["one_step_flip_rates"]), f"{m['largest_error_of_probability']:.1e}",
            shown(m["free_running_disagreement"]),
            "-" if m["median_steps_before_first_flip"] is None else str(m["median_steps_before_first_flip"]),
            f"{m['sequences_without_a_flip']} of {m['sequences']}",
        )
        for m in measured
    ]  # fmt: skip
    environment = machine.environment(args.device)
    print(", ".join(f"{key} {value}" for key, value in environment.items()))
    header = (
        "weights", "engine", "decisions each", "boundaries z¹, z²", "flips in one step", "error of z̃",
        "free: disagree", "steps to 1st flip", "never",
    )  # fmt: skip
    print_table(f"against float64, T={args.steps} B={args.batch}", header, rows)
    if args.out is not None:
        record = {"environment": environment, "steps": args.steps, "batch": args.batch, "hidden": args.hidden}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.with_suffix(".json").write_text(json.dumps(record | {"measurements": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
