"""How well a model answers labelled sequences, and what it answers to new ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import cast

import numpy as np
import torch

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.kinds.labels.batches import Batch, LabelBatches, pad
from hmrnn.kinds.labels.corpus import Examples
from hmrnn.kinds.labels.encoder import LabelEncoder
from hmrnn.kinds.labels.networks import SequenceModel, flat_directions
from hmrnn.kinds.labels.sequences import Item
from hmrnn.nn.output import Output, changes
from hmrnn.nn.predictor import evaluating, multiply_adds
from hmrnn.ops.cuda.captures import uncaptured

BATCH = 64
"""Sequences that are read side by side to be answered."""
Work = tuple[tuple[float, ...], tuple[float, ...], float]
"""Boundary rates, shares of the steps at which each layer moved, multiply-adds per step."""


@dataclasses.dataclass(frozen=True)
class LabelEvaluation:
    """The result of a model on labelled sequences."""

    targets: int
    """Answers that were asked for: labels, tags, symbols, numbers or rows of numbers."""
    nats: float
    """Per target, weighted as in training."""
    error: float
    """Share of the targets that are not the likeliest; of pairs, each symbol given the right ones before it. Of numbers
    the mean squared error, as a share of the variance in the training part."""
    work: Work
    squares: tuple[float, ...] = ()
    """The mean squared error of each number, weighted as in training."""


def evaluate_labelled(
    model: SequenceModel,
    examples: Examples,
    *,
    batch_size: int = 32,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
) -> LabelEvaluation:
    """Judge the targets of all examples; ``share`` = (rank, world) lets each process take every world-th batch."""
    batches = LabelBatches(examples, batch_size)
    device = next(model.parameters()).device
    detectors = model.rnn.num_boundaries * model.config.directions  # 0 of a baseline
    answers = len(model.deviation) if model.numbers else 0
    total = torch.zeros(6 + answers + detectors + model.rnn.num_layers, dtype=torch.float64, device=device)
    mine = range(share[0], len(batches), share[1])
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    for done, index in enumerate(mine, start=1):
        batch = batches.batch(0, index)
        inputs, lengths, targets, counted, places, weights = tensors(batch, device)
        with evaluating(model), torch.inference_mode(), uncaptured(), autocast:  # lengths differ from batch to batch
            judged = model(inputs, lengths, targets, counted, places)
        active = torch.arange(len(inputs), device=device)[:, None] < lengths
        out, weight = judged.out, active[..., None].double()
        cost, moved = work(model, out)
        total += torch.cat([
            torch.stack([
                counted.sum().double(), (weights * counted).sum().double(), (judged.nats.double() * weights).sum(),
                judged.wrong.double().sum(), active.sum().double(), (cost * active).sum(),
            ]),
            *([] if judged.squares is None else [(judged.squares.double() * weights[:, None]).sum(0)]),
            (flat_directions(out).boundaries.double() * weight).sum((0, 1)),
            (moved * weight).sum((0, 1)),
        ])  # fmt: skip
        if progress is not None:
            progress(done, len(mine))
    if share[1] > 1:
        torch.distributed.all_reduce(total)
    count, weighted, nats, wrong, steps, products, *rest = total.tolist()
    squares = tuple(value / max(weighted, 1e-12) for value in rest[:answers])
    shares = tuple(value / steps for value in rest[answers:])
    done_work = shares[:detectors], shares[detectors:], products / steps
    return LabelEvaluation(int(count), nats / max(weighted, 1e-12), wrong / count, done_work, squares)


def work(model: SequenceModel, out: Output) -> tuple[torch.Tensor, torch.Tensor]:
    """(T, B): multiply-adds of each step; (T, B, L): whether each layer moved, 1/2 if one of two directions did."""
    moved = changes(out, model.rnn).double()
    return multiply_adds(model, out).double(), moved.mean(-1) if moved.dim() == 4 else moved


def tensors(batch: Batch, device: torch.device) -> tuple[torch.Tensor, ...]:
    """The arrays of a batch on a device."""
    return tuple(torch.from_numpy(a).to(device) for a in batch)


def read_labelled(
    model: SequenceModel, encoder: LabelEncoder, items: Sequence[Item]
) -> Iterator[tuple[list[int], tuple[torch.Tensor, ...]]]:
    """Groups of sequences of similar length: their places in ``items``, and inputs, lengths, counted, places."""
    places = [encoder.places(one) for one in items]
    targets = [np.zeros(len(one), np.int64) for one in places]
    examples = Examples(list(items), [encoder.encode(one) for one in items], targets, places, np.ones(len(items)))
    order = np.argsort(examples.lengths, kind="stable")
    device = next(model.parameters()).device
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        inputs, lengths, _, counted, at, _ = tensors(pad(examples, chosen), device)
        yield chosen.tolist(), (inputs, lengths, counted, at)


def segmentation(model: SequenceModel, out: Output, row: int, pieces: Sequence[str]) -> Segmentation:
    """What the (forward) network found in one sequence of a batch."""
    T = len(pieces)
    arrays = [a[:T, row].float().cpu().numpy() for a in (out.boundaries, out.probabilities, out.operations)]
    if out.boundaries.dim() == 4:
        arrays = [a[..., 0] for a in arrays]
    boundaries, probabilities, operations = arrays
    hidden = cast(tuple[torch.Tensor, ...], out.hidden)
    norms = torch.stack([h[:T, row].float().norm(dim=-1) for h in hidden], dim=1).cpu().numpy()
    layers = boundaries.shape[1] + 1  # of a baseline, which has no levels, the first alone
    return Segmentation(tuple(pieces), boundaries > 0.5, probabilities, operations[:, :layers], norms[:, :layers])
