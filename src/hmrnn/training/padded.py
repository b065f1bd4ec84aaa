"""PaddedTask: what tasks share whose sequences are each read from the zero state, side by side in padded batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hmrnn.config import Config
from hmrnn.ops import State
from hmrnn.reading.batches import Batches
from hmrnn.reading.score import read_all, to_tensors, unpack
from hmrnn.training.task import Loss, Task, Validation, detected, with_own_inputs


class PaddedTask(Task):
    """The batches and the loss of a :class:`hmrnn.training.task.Task`."""

    capturable = True
    carries_state = False
    offers = frozenset({"surprise", "chances", "hidden"})
    valid: Batches
    """The validation part."""

    def __init__(
        self, config: Config, model: Any, batches: Batches, device: torch.device, rank: int, world: int
    ) -> None:
        t = config.train
        self.config, self.device, self.share = config, device, (rank, world)
        self.model, self.batches = model.to(device), batches
        self.chunks = len(batches)
        rows = t.batch_size // world
        self.rows = slice(rank * rows, (rank + 1) * rows)
        self.symbols: float = batches.plan.lengths.sum() / self.chunks
        self.per_row = self.symbols / t.batch_size

    def batch(self, epoch: int, chunk: int) -> tuple[Tensor, ...]:
        return to_tensors(self.batches.batch(epoch, chunk), self.device, self.rows)

    def loss(self, network: Callable[..., Any], batch: tuple[Tensor, ...], state: State | None) -> Loss:
        """Nats per step, by the mean number of steps of a batch, so that every sequence counts as in the measure."""
        inputs, targets, active, condition = unpack(batch, self.config.model)
        inputs = with_own_inputs(self.model, inputs, self.own_share, None, condition)
        # it reads the padding, too, which comes last: a GPU need not wait
        prediction, out, state = network(inputs, condition=condition)
        nats = torch.where(active, -prediction.log_prob(targets), 0.0)
        count = self.per_row * active.shape[1]
        entropy = prediction.entropy().detach() if "entropy" in self.needs else None
        found = detected(out, self.model.rnn, self.needs)
        return Loss(
            nats.sum() / count, state=state, active=active, surprise=nats.detach(), entropy=entropy, divisor=count,
            **found,
        )  # fmt: skip

    def validate(self, progress: Callable[[int, int], None] | None = None) -> Validation:
        precision = self.config.train.precision
        found = read_all(self.model, self.valid, self.share, precision=precision, progress=progress)
        steps, (nats,), work = found.result(self.share[1])
        return Validation(self.measure(nats / steps), *work, steps)
