"""Term: one technique of training, such as the moving average of the weights. The trainer knows none by name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from torch import Tensor

from hmrnn.config import Config
from hmrnn.training.task import Loss

if TYPE_CHECKING:
    from hmrnn.training.trainer import Trainer


class Term:
    """A technique that takes part in every update; a subclass states only what it does.

    Updates are captured in CUDA graphs, so what a term keeps from one to the next are tensors that keep their memory.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.needs: dict[str, str] = {}
        """The fields of a Loss that the task must fill, with the setting that asks for each."""

    def start(self, run: Trainer) -> None:
        """Make the tensors that the term keeps. The model has its first weights; a resumed run is restored later."""

    def epoch(self, run: Trainer, done: int) -> None:
        """So many epochs are done: 0 before the first update, which a resumed run does not repeat."""

    def update(self, run: Trainer, batch: tuple[Tensor, ...]) -> bool:
        """Learn from a batch in place of an update by gradient, and return True."""
        return False

    def loss(self, reading: Loss) -> Tensor | None:
        """A scalar to minimise beside the loss of the task, for a batch or each part of one."""

    def before_step(self) -> None:
        """The gradient is complete, and not yet clipped."""

    def after_update(self, good: Tensor, rate: Tensor | float) -> None:
        """The optimizer has made its step, at this learning rate; if ``good`` is False, nothing may change."""

    def validating(self) -> contextlib.AbstractContextManager[None]:
        """Within it the model has the weights to measure and to save as the best."""
        return contextlib.nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """What the term keeps, for a checkpoint; a restore copies into these tensors."""
        return {}
