"""What all trained models share: a network with its config, and what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

from hmrnn.checkpoint import Reads
from hmrnn.config import Config
from hmrnn.nn.models import describe
from hmrnn.utils.devices import find_device

Progress: TypeAlias = Callable[[int, int], None] | None
"""A function that is told how much of how much is done."""
M = TypeVar("M", bound="Model")


class Model:
    """The face of a trained model: ``segment``, ``segment_many``, ``generate``, ``score``, ``figure``, ``corpus``."""

    figures: ClassVar[tuple[str, ...]]
    """The names that ``figure`` takes, the usual one first."""
    network: Any
    config: Config
    source: str | None

    @property
    def reads(self) -> Reads:
        """What it reads: the vocabulary of a text or the scale of strokes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.source or 'in memory'}: {describe(self.network)}; {self.reads.describe()}>"
        )

    def to(self: M, device: str | torch.device) -> M:
        """Move the network; returns self."""
        self.network.to(find_device(device))
        return self
