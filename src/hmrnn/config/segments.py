"""The segmental head of a run."""

from __future__ import annotations

import dataclasses

from hmrnn.config import checks
from hmrnn.errors import InputError


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """The segmental head: the text as words, summed over all ways to cut it. Text only."""

    size: int = 0
    """Units of the decoder that spells a word. 0: no segmental head."""
    longest: int = 0
    """Most symbols of a word. 0: learned from the text before the first update, as are detectors.rates if
    detectors.pull_to is segments."""
    lexicon: int = 0
    """Most words of the lexicon that is learned from the text and mixed with the decoder. 0: no lexicon."""
    reader: int = 0
    """Units of a recurrent network of the head's own, which reads the text for it. 0: the head reads the states of the
    model, which know within a word how it goes on: after many updates its segments are single symbols."""
    weight: float = 1.0
    """Weight of the head's loss, in nats per symbol, beside that of the next symbol."""
    dropout: float = 0.25
    """Share of the context and of the decoder's units that are dropped in training."""

    def check(self) -> None:
        """Raise InputError if a value cannot work."""
        checks.not_negative("segments", self, "size longest lexicon reader weight")
        checks.limited("segments", self, "size longest lexicon reader")
        checks.shares("segments", self, "dropout")
        for name in ("longest", "lexicon", "reader"):
            if getattr(self, name) and not self.size:
                raise InputError(
                    "is of a segmental head; set segments.size, such as 64, or leave it out", setting=f"segments.{name}"
                )
