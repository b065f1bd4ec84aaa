"""Professor forcing (Lamb et al., 2016) on built-in handwriting, beside training on the true points alone.

    python benchmarks/professor.py --seeds 1 2 3

Both runs share their first half. In the second half of one of them, a discriminator learns to tell h of the network on
true points from h on points that it drew itself, and the network learns to be taken for the former. Prints, per run,
the validation in nats per point and how far generated lines are from true ones: the difference of the share of lifts,
and the relative difference of the mean length of a step with the pen down. --out appends it as JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmrnn.kinds.strokes.corpus import load_strokes
from hmrnn.kinds.strokes.network import HandwritingModel
from hmrnn.kinds.strokes.settings import StrokeData, StrokeModelConfig
from hmrnn.kinds.strokes.strokes import Scale, Strokes
from hmrnn.kinds.strokes.write import write
from hmrnn.nn.predictor import evaluating

POINTS, BATCH = 80, 16


class Judge(nn.Module):
    """The logit (B,) that h (T, B, H) comes from true points."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.rnn, self.linear = nn.GRU(size, 32), nn.Linear(32, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.linear(self.rnn(hidden)[0].mean(0))[:, 0]


def lines(strokes: Strokes, scale: Scale) -> Tensor:
    """(POINTS, lines, 3): the first points of the lines that are long enough, as the model reads them."""
    long = [strokes[k][:POINTS] for k in range(len(strokes)) if len(strokes[k]) >= POINTS]
    return torch.from_numpy(np.stack([scale.encode(line) for line in long], axis=1)).float()


def features(points: np.ndarray) -> tuple[float, float]:
    """Of lines (n, T, 3): the share of lifts, and the mean length of a step with the pen down."""
    down = points[:, :-1, 2] < 0.5
    return float(points[..., 2].mean()), float(np.linalg.norm(points[:, 1:, :2], axis=-1)[down].mean())


def nats(model: HandwritingModel, points: Tensor) -> tuple[Tensor, Tensor]:
    """The loss in nats per point, and h (T, B, H) of all layers."""
    mixture, out, _ = model(points[:-1])
    return -mixture.log_prob(points[1:]).mean(), torch.cat(list(out.hidden), dim=-1)


def continued(
    model: HandwritingModel, train: Tensor, scale: Scale, seed: int, updates: int, rate: float, weight: float
) -> None:
    """Train on; with a ``weight`` of the discriminator, by professor forcing."""
    draw = np.random.default_rng(seed)
    torch.manual_seed(seed)
    judge = Judge(sum(model.rnn.hidden_sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    judging = torch.optim.Adam(judge.parameters(), lr=0.002)
    for step in range(updates):
        points = train[:, draw.integers(0, train.shape[1], BATCH)]
        loss, forced = nats(model, points)
        if weight:
            with evaluating(model):
                written = write(model, scale, POINTS - 1, samples=BATCH, seed=seed * 100_000 + step)
            own = torch.from_numpy(np.stack([scale.encode(line) for line in written], axis=1)).float()
            start = points[:1]  # a line begins with the step (0, 0)
            _, free = nats(model, torch.cat([start, own]))
            real, false = judge(forced.detach()), judge(free.detach())
            wrong = F.softplus(-real).mean() + F.softplus(false).mean()
            judging.zero_grad()
            wrong.backward()
            judging.step()
            loss = loss + weight * F.softplus(-judge(free)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def measured(model: HandwritingModel, valid: Tensor, scale: Scale, real: tuple[float, float]) -> dict[str, float]:
    """Nats per point of the validation part, and the distance of 64 generated lines from true ones."""
    with evaluating(model), torch.no_grad():
        value = float(nats(model, valid)[0])
        lifts, length = features(np.stack(write(model, scale, POINTS, samples=64, seed=7)))
    return {"nats": value, "lifts_off": abs(lifts - real[0]), "length_off": abs(length / real[1] - 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=150, help="of each half")
    parser.add_argument("--weight", type=float, default=0.1, help="of the discriminator")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", help="a file to which results are appended, one JSON object per line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    corpus = load_strokes(StrokeData(format="handwritten", lines=300, valid_fraction=0.2))
    scale = corpus.spec
    train, valid = lines(corpus.train, scale), lines(corpus.valid, scale)
    real = features(scale.decode(valid.transpose(0, 1).numpy()))
    for seed in given.seeds:
        torch.manual_seed(seed)
        first = HandwritingModel(StrokeModelConfig("lstm", hidden_size=(64,), num_layers=1, output_size=64, mixtures=5))
        continued(first, train, scale, seed, given.updates, 0.005, 0.0)
        for name, weight in (("true points alone", 0.0), ("professor forcing", given.weight)):
            model = copy.deepcopy(first)
            continued(model, train, scale, seed + 50, given.updates, 0.002, weight)
            row: dict[str, Any] = {"training": name, "seed": seed, **measured(model, valid, scale, real)}
            print(" ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
            if given.out:
                with open(given.out, "a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
