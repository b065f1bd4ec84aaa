"""Ridge: the output of an echo state network, fitted in closed form after a pass over the training part."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.nn.baselines.echo_state import solve_ridge
from hmrnn.training.task import Term, Training


class Ridge(Term):
    """A ridge regression of the next symbol on h of all layers: batches add to its sums, and an epoch solves it."""

    def start(self, run: Training) -> None:
        if run.world > 1 or self.config.train.accumulate > 1:
            raise InputError(
                "adds whole batches in one process; leave out torchrun and train.accumulate", setting="model.ridge"
            )
        self.softmax = run.model.softmax
        rows, symbols = self.softmax.in_features + 1, self.softmax.out_features
        self.gram = torch.zeros(rows, rows, dtype=torch.float64, device=run.device)
        self.moment = self.gram.new_zeros(rows, symbols)

    @torch.no_grad()
    def update(self, run: Training, batch: tuple[Tensor, ...]) -> bool:
        read: list[Tensor] = []
        hook = self.softmax.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        try:
            with run.autocast():
                loss = run.task.loss(run.network, batch, run.state)
        finally:
            hook.remove()
        good, _ = run.watch.note(loss.value, run.world)
        if run.state is not None:
            run.state.copy_(loss.state, good)
        x = torch.cat([read[-1].float(), torch.ones_like(read[-1][..., :1], dtype=torch.float32)], dim=-1)
        x = (x if loss.active is None else x * loss.active[..., None]).flatten(0, 1)
        self.gram += x.T @ x
        self.moment += x.T @ F.one_hot(batch[1].flatten(), self.softmax.out_features).float()
        return True

    @torch.no_grad()
    def epoch(self, run: Training, done: int) -> None:
        if done:
            W, b = solve_ridge(self.gram, self.moment, self.config.model.ridge)
            self.softmax.weight.copy_(W)
            self.softmax.bias.copy_(b)
        self.gram.zero_()
        self.moment.zero_()

    def tensors(self) -> dict[str, Tensor]:
        return {"gram": self.gram, "moment": self.moment}
