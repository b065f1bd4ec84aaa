"""Bounds on the gradient that a boundary passes to the previous one of its detector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hmrnn.nn.hmlstm import hmlstms
from hmrnn.training.terms.term import Term

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer

GELU_SLOPE = 1.13
"""The largest slope of gelu, rounded up."""


class Bounds(Term):
    """Shrinks the detectors' rows of V and U where they exceed ``detectors.bounds``."""

    def start(self, run: Trainer) -> None:
        self.model = run.model

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        bound_feedback(self.model, *self.config.detectors.bounds, good)


@torch.no_grad()
def bound_feedback(model: nn.Module, feedback: float, recurrence: float, good: Tensor | bool = True) -> None:
    """Shrink the detectors' rows of V and U, which bounds the gradient that a boundary passes to the previous one.

    A boundary adds v·h to the next pre-activation of its own detector, where h belongs to the layer above. So the
    gradient is multiplied by (a/2)·v·h at every step in the linear range, which is at most (a/2)·‖v‖₁ as |h| < 1;
    ``feedback`` bounds this. A boundary also decides whether the cell is kept, which changes h of its own layer by
    about 1 at most: hence (a/2)·‖u‖₁, which ``recurrence`` bounds. The cell remembers the change for some steps, so a
    bound of 1 does not guarantee stability there. 0: no bound. A skipped update (``good`` is False) changes nothing.

    With a hidden layer the same holds for the columns of D1 that read h, each row weighed by D2 and by the largest
    slope of gelu.
    """
    for module in hmlstms(model):
        for w in module.layers():
            for bound, matrix, first in ((feedback, w.V, w.hidden_size), (recurrence, w.U, 0)):
                if bound == 0 or matrix is None or not w.has_detector:
                    continue
                if w.D1 is not None and w.D2 is not None:
                    read = w.D1[:, first : first + matrix.shape[1]]
                    size = GELU_SLOPE * (w.D2.abs() @ read.abs()).sum()
                else:
                    read, size = matrix[-1], matrix[-1].abs().sum()
                factor = (2 * bound / (module.a * size)).clamp(max=1)
                read.mul_(1 - good * (1 - factor))
