"""How well a model predicts sequences: totals over chunks and padded batches, and the base of their results."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from hmrnn.config import ModelConfig
from hmrnn.kind import Progress
from hmrnn.nn.context import Condition
from hmrnn.nn.output import Output, changes
from hmrnn.nn.predictor import Predictor, evaluating, multiply_adds
from hmrnn.ops import State
from hmrnn.ops.cuda.captures import uncaptured
from hmrnn.ops.interface import within
from hmrnn.reading.batches import Batch, Batches
from hmrnn.reading.read import Read, check_finite, read


@dataclasses.dataclass(frozen=True)
class Score:
    """The base of the results of a model: what its layers did."""

    rates: tuple[float, ...]
    """How often each detector fired, per step."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did not COPY; 1 with soft boundaries, which skip nothing."""
    multiply_adds: float
    """Per step, with the output module (see :func:`hmrnn.nn.predictor.multiply_adds`)."""

    @property
    def saved(self) -> float:
        """Share of a dense RNN's updates that were not made (the paper's 335 instead of 810 is 0.59)."""
        return 1 - sum(self.updates) / len(self.updates)

    @property
    def finite(self) -> bool:
        """Whether the model predicts finite probabilities."""
        raise NotImplementedError

    def checked(self) -> Self:
        """This; InputError unless it is finite."""
        check_finite(self.finite)
        return self


class Sums:
    """Totals on the device in double precision: steps, multiply-adds, boundaries per detector and layer updates.

    Before them come ``own`` sums of the caller's, such as nats.
    """

    def __init__(self, model: Any, own: int = 1) -> None:
        self.model, self.own = model, own
        self.detectors = model.rnn.num_boundaries * model.config.directions
        with torch.inference_mode(False):  # so that it can be added to in any mode
            count = own + 2 + self.detectors + model.rnn.num_layers
            self.values = torch.zeros(count, dtype=torch.float64, device=next(model.parameters()).device)

    def add(self, found: Read, nats: Tensor, counted: Tensor) -> None:
        """Add the steps of a chunk that are ``counted`` (T, B); ``nats`` (T, B) is their surprise."""
        self.count(found.output, counted, torch.where(counted, nats, 0.0).double().sum(), before=found.before)

    def count(self, out: Output, counted: Tensor, *own: Tensor, before: State | None = None) -> None:
        """Add what a network did at the steps that are ``counted`` (T, B), and the caller's own sums."""

        def over(a: Tensor) -> Tensor:
            return (a.double() * counted.view(*counted.shape, *[1] * (a.dim() - 2))).sum((0, 1))

        moved = over(changes(out, self.model.rnn))  # (L,), of two directions (L, 2)
        sums = (
            *own, counted.sum(), over(multiply_adds(self.model, out, before)), over(out.boundaries).movedim(-1, 0),
            moved.mean(-1) if moved.dim() == 2 else moved,
        )  # fmt: skip
        self.values += torch.cat([one.double().flatten() for one in sums])

    def result(self, world: int = 1) -> tuple[int, list[float], tuple[tuple[float, ...], tuple[float, ...], float]]:
        """Steps and own sums, then rates, updates and multiply-adds per step; summed over ``world`` processes."""
        if world > 1:
            torch.distributed.all_reduce(self.values)
        values: list[float] = self.values.tolist()
        count, products, *rest = values[self.own :]
        shares = tuple(value / count for value in rest)
        return int(count), values[: self.own], (shares[: self.detectors], shares[self.detectors :], products / count)


def to_tensors(batch: Batch, device: torch.device, columns: slice = slice(None)) -> tuple[Tensor, ...]:
    """Inputs and targets (T, B, ...), counted steps (B,) and, if there are any, conditions and texts.

    These are (B,), (1, B, numbers) or (1, B, letters). Of some rows; copied to a GPU without waiting for it.
    """
    arrays = [batch.inputs[:, columns], batch.targets[:, columns], batch.counted[columns]]
    for more in (batch.conditions, batch.texts):
        if more is not None:
            arrays.append(more[columns] if more.ndim == 1 else more[None, columns])
    tensors = [torch.tensor(a) for a in arrays]
    if device.type == "cuda":
        tensors = [a.pin_memory().to(device, non_blocking=True) for a in tensors]
    return tuple(tensors)


def unpack(batch: tuple[Tensor, ...], config: ModelConfig) -> tuple[Tensor, Tensor, Tensor, Condition]:
    """Inputs, targets, what is counted (T, B), and the condition."""
    inputs, targets, counted, *rest = batch
    given = [a[0] if a.dim() == 3 else a for a in rest]
    value = given.pop(0) if config.conditioned else None
    clock = counted if config.time == "left" else None
    return inputs, targets, within(counted, len(inputs)), Condition(value, clock, given[0] if given else None)


def read_all(
    model: Predictor,
    batches: Batches,
    share: tuple[int, int],
    *,
    precision: str = "float32",
    progress: Progress = None,
) -> Sums:
    """The totals over every world-th of the batches, ``share`` = (rank, world); each sequence is read from its start.

    ``precision`` is that of :func:`hmrnn.reading.read.read`.
    """
    total = Sums(model)
    for batch in each(batches, share, progress):
        inputs, targets, counted, condition = unpack(to_tensors(batch, total.values.device), model.config)
        for found in read(model, [inputs], precision=precision, condition=condition):
            total.add(found, -found.prediction.log_prob(targets), counted)
    return total


def each(batches: Any, share: tuple[int, int] = (0, 1), progress: Progress = None) -> Iterator[Any]:
    """Every world-th of the batches, ``share`` = (rank, world); ``progress`` is called with those done, and all."""
    mine = range(share[0], len(batches), share[1])
    for done, index in enumerate(mine, start=1):
        yield batches.batch(0, index)
        if progress is not None:
            progress(done, len(mine))


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Run a model as in ``eval()``, without gradients and without captures: lengths differ from batch to batch."""
    with evaluating(model), torch.inference_mode(), uncaptured():
        yield
