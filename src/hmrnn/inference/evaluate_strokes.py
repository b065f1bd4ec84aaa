"""The paper's measure for handwriting: the log-likelihood of a whole sequence in nats, averaged over sequences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from hmrnn.data.strokes.batches import StrokeBatch, StrokeBatches
from hmrnn.data.strokes.strokes import Scale, Strokes
from hmrnn.nn.models import HandwritingModel, evaluating
from hmrnn.nn.output import Output, changes
from hmrnn.ops import State


@dataclasses.dataclass(frozen=True)
class StrokeEvaluation:
    """What a model makes of sequences of points."""

    sequences: int
    points: int
    """Points predicted: all but the first of each sequence."""
    log_likelihood: float
    """Nats per sequence, in normalised coordinates; higher is better."""
    rates: tuple[float, ...]
    """How often each detector fired."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did UPDATE or FLUSH; with soft boundaries, which leave nothing out, 1."""

    @property
    def per_point(self) -> float:
        """Nats per predicted point."""
        return self.log_likelihood * self.sequences / self.points

    @property
    def saved(self) -> float:
        """Share of a dense RNN's updates that were not made."""
        return 1 - sum(self.updates) / len(self.updates)


def to_tensors(batch: StrokeBatch, device: torch.device, columns: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and targets (T, B, 3) and counted steps (B,) of some rows; a GPU gets them without being waited for."""
    arrays = (batch.inputs[:, columns], batch.targets[:, columns], batch.counted[columns])
    tensors = [torch.tensor(a) for a in arrays]
    if device.type == "cuda":
        tensors = [a.pin_memory().to(device, non_blocking=True) for a in tensors]
    inputs, targets, counted = tensors
    return inputs, targets, counted


def read_batch(network: Callable[..., Any], batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Output, State]:
    """Log-densities (T, B) in nats, 0 where nothing counts; which steps count (T, B); the network's output and state.

    The network reads the padding, too: it comes last, so nothing that counts has seen it, and a GPU need not be asked
    where it begins.
    """
    inputs, targets, counted = batch
    mixture, out, state = network(inputs)
    active = torch.arange(len(inputs), device=inputs.device)[:, None] < counted  # (T, B)
    return torch.where(active, mixture.log_density(targets), 0.0), active, out, state


def evaluate_strokes(
    network: HandwritingModel,
    strokes: Strokes,
    scale: Scale,
    *,
    batch_size: int = 32,
    precision: str = "float32",
    progress: Callable[[int, int], None] | None = None,
    share: tuple[int, int] = (0, 1),
) -> StrokeEvaluation:
    """Read every sequence from the zero state and predict each point from those before it.

    ``share`` = (rank, world) lets each process of a group take every world-th batch; the sums are then added up.
    """
    device = network.density.weight.device
    batches = StrokeBatches(strokes, scale, batch_size)
    detectors, layers = network.rnn.num_boundaries, network.rnn.num_layers
    sums = torch.zeros(1 + detectors + layers, dtype=torch.float64, device=device)
    autocast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
    mine = range(share[0], len(batches), share[1])
    with evaluating(network), torch.inference_mode(), autocast:
        for done, index in enumerate(mine, start=1):
            log_density, active, out, _ = read_batch(network, to_tensors(batches.batch(0, index), device))
            weight = active[..., None].double()  # (T, B, 1)
            sums += torch.cat([
                log_density.double().sum()[None],
                (out.boundaries.double() * weight).sum((0, 1)),
                (changes(out, network.rnn) * weight).sum((0, 1)),
            ])  # fmt: skip
            if progress is not None:
                progress(done, len(mine))
    if share[1] > 1:
        torch.distributed.all_reduce(sums)
    points = int(strokes.lengths.sum()) - len(strokes)
    total, *rest = sums.tolist()
    shares = tuple(value / points for value in rest)
    return StrokeEvaluation(len(strokes), points, total / len(strokes), shares[:detectors], shares[detectors:])
