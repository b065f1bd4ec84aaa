"""Ridge: the output of an echo state network, fitted in closed form after a pass over the training part."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn.baselines.echo_state import solve_ridge
from hmrnn.ops import states


class Ridge:
    """The sums that a ridge regression of the next symbol on h of all layers needs, and its solution.

    The sums keep their memory, so that :meth:`gather` can be captured in a CUDA graph.
    """

    def __init__(self, trainer: Any) -> None:
        if trainer.world > 1 or trainer.config.train.accumulate > 1:
            raise InputError("model.ridge adds whole batches in one process; leave out torchrun and train.accumulate")
        self.trainer, self.softmax = trainer, trainer.model.softmax
        rows, symbols = self.softmax.in_features + 1, self.softmax.out_features
        made: dict[str, Any] = {"dtype": torch.float64, "device": trainer.device}
        self.gram, self.moment = torch.zeros(rows, rows, **made), torch.zeros(rows, symbols, **made)

    @torch.no_grad()
    def gather(self, batch: tuple[Tensor, ...]) -> None:
        """Add a batch to the sums, in place of an update."""
        t, read = self.trainer, []
        hook = self.softmax.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        try:
            with t.autocast():
                loss = t.task.loss(t.network, batch, t.state)
        finally:
            hook.remove()
        good, _ = t.watch.note(loss.value, t.world)
        t.epoch += good
        if t.state is not None:
            states.copy(t.state, loss.state, good)
        x = torch.cat([read[-1].float(), torch.ones_like(read[-1][..., :1], dtype=torch.float32)], dim=-1)
        x = (x if loss.active is None else x * loss.active[..., None]).flatten(0, 1)
        self.gram += x.T @ x
        self.moment += x.T @ F.one_hot(batch[1].flatten(), self.softmax.out_features).float()

    @torch.no_grad()
    def solve(self) -> None:
        """Give the output the weights with the least squared error, and start new sums."""
        W, b = solve_ridge(self.gram, self.moment, self.trainer.config.model.ridge)
        self.softmax.weight.copy_(W)
        self.softmax.bias.copy_(b)
        self.gram.zero_()
        self.moment.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The sums, for a checkpoint."""
        return {"ridge.gram": self.gram, "ridge.moment": self.moment}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Return to the sums of a checkpoint."""
        self.gram.copy_(tensors["ridge.gram"])
        self.moment.copy_(tensors["ridge.moment"])
