"""What becomes of the weights after each update: their decay, and their moving average."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hmrnn.nn.hmlstm import hmlstms
from hmrnn.training.task import Term, Training


class Decay(Term):
    """Takes a share of every matrix off it at each update; the share falls with the learning rate."""

    def start(self, run: Training) -> None:
        self.model = run.model

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        decay(self.model, rate * (good if good.is_cuda else bool(good)) * self.config.regularise.weight_decay)


@torch.no_grad()
def decay(model: nn.Module, share: Tensor | float) -> None:
    """Subtract ``share`` of every matrix; biases, gains, the detectors' rows and matrices and fixed weights stay."""
    layers = [w for rnn in hmlstms(model) for w in rnn.layers()]
    rows = {id(a): 4 * w.hidden_size for w in layers for a in (w.U, w.V, w.W)}  # without the detector's
    rows |= {id(a): 0 for w in layers for a in (w.D1, w.D2)}
    for p in model.parameters():
        if p.dim() > 1 and p.requires_grad:
            p[: rows.get(id(p))].mul_(1 - share)


class Average(Term):
    """The exponential moving average of the weights, without a bias towards the first ones."""

    def start(self, run: Training) -> None:
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
