"""The moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hmrnn.training.terms.term import Term

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer


class Average(Term):
    """The exponential moving average of the weights, without a bias towards the first ones."""

    def start(self, run: Trainer) -> None:
        self.parameters = dict(run.model.named_parameters())
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.updates = torch.zeros((), dtype=torch.float64, device=run.device)

    @torch.no_grad()
    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        decay = self.config.regularise.average
        self.updates += good
        share = (1 - decay) / (1 - decay**self.updates)  # 1 for the first
        for name, p in self.parameters.items():
            mean = self.weights[name]
            mean.copy_(torch.where(good, mean.lerp(p, share.to(p.dtype)), mean))

    @contextlib.contextmanager
    def validating(self) -> Iterator[None]:
        raw = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._give_model(self.weights)
        try:
            yield
        finally:
            self._give_model(raw)

    def tensors(self) -> dict[str, Tensor]:
        return {"updates": self.updates, **{f"weights.{name}": weight for name, weight in self.weights.items()}}

    @torch.no_grad()
    def _give_model(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])
