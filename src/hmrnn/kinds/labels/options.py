"""The options of ``hmrnn predict`` for labelled sequences."""

from __future__ import annotations

import dataclasses

from hmrnn.utils.options import Options, option


@dataclasses.dataclass(frozen=True)
class Predict(Options):
    explain: bool = option(False, without=("json",))
    """Show the probabilities, and the segments that decided."""


@dataclasses.dataclass(frozen=True)
class Beam(Predict):
    beam: int = option(1, "N", least=1)
    """Pairs and handwriting: width of the beam search; 1 takes the likeliest symbol at each step."""
