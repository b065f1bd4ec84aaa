"""The techniques of training, a file each; the trainer knows none of them by name."""

from __future__ import annotations

from hmrnn.config import Config
from hmrnn.training.terms.averaging import Average
from hmrnn.training.terms.decay import Decay
from hmrnn.training.terms.term import Term


def make_terms(config: Config) -> list[Term]:
    """The techniques that ``config`` asks for, in the order in which they act."""
    r = config.regularise
    asked: list[tuple[type[Term], object]] = [(Decay, r.weight_decay), (Average, r.average)]
    return [term(config) for term, on in asked if on]
