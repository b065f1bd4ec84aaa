"""Decoupled weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hmrnn.nn.hmlstm import hmlstms
from hmrnn.training.terms.term import Term

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer


class Decay(Term):
    """Takes a share of every matrix off it at each update; the share falls with the learning rate."""

    def start(self, run: Trainer) -> None:
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
