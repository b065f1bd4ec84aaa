"""What happens to all weights after an update: decay, and their moving average."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hmrnn.nn.hmlstm import hmlstms


@torch.no_grad()
def decay(model: nn.Module, share: Tensor | float) -> None:
    """Subtract ``share`` of every matrix; biases, gains, the detectors' rows and matrices and fixed weights stay."""
    layers = [w for rnn in hmlstms(model) for w in rnn.layers()]
    rows = {id(a): 4 * w.hidden_size for w in layers for a in (w.U, w.V, w.W)}  # without the detector's
    rows |= {id(a): 0 for w in layers for a in (w.D1, w.D2)}
    for p in model.parameters():
        if p.dim() > 1 and p.requires_grad:
            p[: rows.get(id(p))].mul_(1 - share)


class Average:
    """The exponential moving average of the weights, without a bias towards the first ones.

    All tensors keep their memory, so that an update can be captured in a CUDA graph.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = dict(model.named_parameters())
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.updates = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)

    @torch.no_grad()
    def update(self, good: Tensor | bool = True) -> None:
        """Include the present weights; a skipped update (``good`` is False) changes nothing."""
        self.updates += good
        share = (1 - self.decay) / (1 - self.decay**self.updates)  # 1 for the first
        for name, p in self.parameters.items():
            mean = self.weights[name].lerp(p, share.to(p.dtype))
            if isinstance(good, Tensor):
                mean = torch.where(good, mean, self.weights[name])
            self.weights[name].copy_(mean)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within it the model has the average as its weights."""
        raw = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._give_model(self.weights)
        try:
            yield
        finally:
            self._give_model(raw)

    def tensors(self) -> dict[str, Tensor]:
        return {"updates": self.updates, **{f"weights.{name}": weight for name, weight in self.weights.items()}}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    @torch.no_grad()
    def _give_model(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(weights[name])
