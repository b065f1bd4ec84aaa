"""Task: what a run learns from, behind one face. The trainer knows updates and schedules, a task knows its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.config_use import STROKE_FORMATS
from hmrnn.nn.output import Operation, Output
from hmrnn.ops import State


@dataclasses.dataclass(frozen=True)
class Validation:
    """What a model makes of the validation part."""

    measure: float
    """In the unit of the task; lower is better."""
    rates: tuple[float, ...]
    """How often each detector fired."""
    updates: tuple[float, ...]
    """Share of the steps at which each layer did UPDATE or FLUSH."""
    count: int
    """Symbols or sequences that were measured."""


class Reading(NamedTuple):
    """What a network made of a batch, or of a part of one."""

    loss: Tensor
    """What an update descends, in nats: a scalar. That of a whole batch is the mean over its parts."""
    boundaries: Tensor
    """(T, B, detectors), with their gradient."""
    state: State
    active: Tensor | None = None
    """(T, B): False in the padding; None where there is none."""
    surprise: Tensor | None = None
    """(T, B): nats for what follows each step, without a gradient; may be None where regularise does not ask for it."""
    expected: Tensor | None = None
    """(T, B): the surprise that was to be expected there, the entropy of the prediction; None where it is not known."""
    chances: Tensor | None = None
    """(T, B, detectors): how likely each detector was to fire; may be None where regularise does not ask for it."""

    def weight(self) -> Tensor:
        """What the rates of this part of a batch count beside those of others: its steps, or 1 where all are alike."""
        return torch.ones_like(self.loss) if self.active is None else self.active.sum()

    def rates(self) -> Tensor:
        """(detectors,): how often each detector fired, with its gradient."""
        if self.active is None:
            return self.boundaries.mean((0, 1))
        return (self.boundaries * self.active[..., None]).sum((0, 1)) / self.active.sum().clamp(min=1)


def chances(out: Output, rnn: Any) -> Tensor:
    """(T, B, detectors): what the detectors' hard sigmoids say, and 0 where one that holds its peace cannot fire."""
    if rnn.num_boundaries == 0 or rnn.on_copy != "hold":
        return out.probabilities
    return torch.where(out.operations[..., : rnn.num_boundaries] == Operation.COPY, 0.0, out.probabilities)


class Task(Protocol):
    """Data, model, loss and measure of a run, on one device; each process of a group has its own share of the data."""

    unit: str
    """Name of the measure: "bits" or "nats". It is the key of the measure in metrics.jsonl."""
    per: str
    """What the measure is counted per: "character", "byte", "sequence"."""
    symbol: str
    """What is read at one time step: "character", "byte", "point"."""
    model: Any
    """An ``nn.Module`` on the device, whose ``rnn`` is a recurrent network of this package."""
    chunks: int
    """Updates of an epoch."""
    symbols: float
    """Symbols read in an update, by all processes together; a mean where updates differ."""
    carries_state: bool
    """True: the state goes over from chunk to chunk within an epoch. False: every sequence starts at zero."""
    checksum: int
    """CRC-32 of what is trained and validated on: a run can only go on with the same."""

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        """This process's part of an update, on its device; epoch, chunk and seed decide it.

        Tensors are (T, B, ...), or (B,) for what a sequence has one of; all with the same B, a multiple of
        ``train.accumulate``. Shapes may change from batch to batch, but a GPU runs faster if only few come back.
        """
        ...

    def read(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Reading:
        """Predict a batch, or a share of the sequences of one that :meth:`batch` gave.

        ``network`` is the model, or what stands for it among several processes, and is called once. ``state`` is None
        where it is not carried.
        """
        ...

    def measure(self, loss: float) -> float:
        """A loss in the unit of the task."""
        ...

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        """Read the validation part with the model as it is now; a collective call under torchrun."""
        ...

    def saved(self) -> Any:
        """What a model needs beside its weights to be used: the vocabulary, or the scale of strokes."""
        ...

    def describe(self) -> str:
        """The data, in a line for the user."""
        ...


def make_task(config: Config, data: Any, device: torch.device, rank: int = 0, world: int = 1) -> Task:
    """The task that ``config.data.format`` asks for; the seed alone decides the weights it begins with."""
    torch.manual_seed(config.train.seed)
    if config.data.format in STROKE_FORMATS:
        from hmrnn.tasks.strokes import StrokeTask

        return StrokeTask(config, data, device, rank, world)
    from hmrnn.tasks.text import TextTask

    return TextTask(config, data, device, rank, world)
