"""Regularisation of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from hmrnn.config.checks import NotNegative, Share, network


@dataclasses.dataclass(frozen=True)
class RegulariseConfig:
    """Regularisation; off by default."""

    weight_drop: Share = 0.0
    """DropConnect: share of the recurrent weights (U, V) set to zero in an update, except the detectors' rows."""
    dropout_embedding: Share = 0.0
    """Share of the embedding set to zero, per sequence of an update. Strokes have no embedding."""
    dropout_between: Share = 0.0
    """Share of a layer's units that the gates of the layer above do not see, per sequence of an update."""
    dropout_output: Share = 0.0
    """Share of all layers' units that the output module does not see, per sequence of an update."""
    shift: bool = False
    """Text: start every epoch at a random position, so that the text is cut at other places each time."""
    zoneout: Annotated[Share, network("hm-lstm", "hrnn", "ln-lstm")] = 0.0
    """Share of the cells that keep their value at an update, drawn at every step."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay: each update takes this share, times the learning rate, off every matrix except the
    detectors' rows."""
    average: Share = 0.0
    """Decay (such as 0.999) of a moving average of the weights, which is validated and saved as the best model; 0: no
    average."""
