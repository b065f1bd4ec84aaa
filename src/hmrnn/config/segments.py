"""The segmental head of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from hmrnn.config.checks import BY_GRADIENT, Natural, Needs, NotNegative, Share


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """The segmental head: the text as words, summed over all ways to cut it."""

    size: Annotated[Natural, BY_GRADIENT] = 0
    """Units of the decoder that spells a word. 0: no segmental head."""
    longest: Annotated[Natural, Needs("segments.size")] = 0
    """Most symbols of a word. 0: learned from the text before the first update, as are detectors.rates if
    detectors.pull_to is segments."""
    lexicon: Annotated[Natural, Needs("segments.size")] = 0
    """Most words of the lexicon that is learned from the text and mixed with the decoder. 0: no lexicon."""
    reader: Annotated[Natural, Needs("segments.size")] = 0
    """Units of a recurrent network of the head's own, which reads the text for it. 0: the head reads the states of the
    model, which know within a word how it goes on: after many updates its segments are single symbols."""
    weight: NotNegative = 1.0
    """Weight of the head's loss, in nats per symbol, beside that of the next symbol."""
    dropout: Share = 0.25
    """Share of the context and of the decoder's units that are dropped in training."""
