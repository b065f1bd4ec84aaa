"""How well a model answers labelled sequences."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch

from hmrnn.kinds.labels.batches import LabelBatches
from hmrnn.kinds.labels.corpus import Examples
from hmrnn.kinds.labels.networks import SequenceModel, flat_directions
from hmrnn.nn.output import changes
from hmrnn.nn.predictor import evaluating, multiply_adds
from hmrnn.ops.cuda.captures import uncaptured
from hmrnn.training.task import Validation


def evaluate_labelled(
    model: SequenceModel,
    examples: Examples,
    *,
    batch_size: int = 32,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
) -> tuple[Validation, list[float]]:
    """Judge the targets of all examples, in nats per target; and the mean squared error of each number.

    Both are weighted as in training. The error is the share of the targets that are not the likeliest; of pairs, each
    symbol given the right ones before it; of numbers the mean squared error, as a share of the variance in the training
    part. ``share`` = (rank, world) lets each process take every world-th batch.
    """
    batches = LabelBatches(examples, batch_size)
    device = next(model.parameters()).device
    detectors = model.rnn.num_boundaries * model.config.directions  # 0 of a baseline
    answers = len(model.deviation) if model.numbers else 0
    total = torch.zeros(6 + answers + detectors + model.rnn.num_layers, dtype=torch.float64, device=device)
    mine = range(share[0], len(batches), share[1])
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    for done, index in enumerate(mine, start=1):
        batch = batches.batch(0, index).on(device)
        with evaluating(model), torch.inference_mode(), uncaptured(), autocast:  # lengths differ from batch to batch
            judged = model(*batch)
        out, active, weights = judged.out, batch.active, batch.weights
        moved = changes(out, model.rnn).double()  # (T, B, L), of two directions (T, B, L, 2)
        moved = moved.mean(-1) if moved.dim() == 4 else moved
        sums = (
            batch.counted.sum(),
            (weights * batch.counted).sum(),
            (judged.nats.double() * weights).sum(),
            judged.wrong.double().sum(),
            active.sum(),
            (multiply_adds(model, out).double() * active).sum(),
            (judged.squares.double() * weights[:, None]).sum(0),
            (flat_directions(out).boundaries.double() * active[..., None]).sum((0, 1)),
            (moved * active[..., None]).sum((0, 1)),
        )
        total += torch.cat([one.double().flatten() for one in sums])
        if progress is not None:
            progress(done, len(mine))
    if share[1] > 1:
        torch.distributed.all_reduce(total)
    count, weighted, nats, wrong, steps, products, *rest = total.tolist()
    shares = tuple(value / steps for value in rest[answers:])
    weighted = max(weighted, 1e-12)
    found = Validation(
        nats / weighted, shares[:detectors], shares[detectors:], products / steps, int(count), wrong / count
    )
    return found, [value / weighted for value in rest[:answers]]
