"""The techniques of training, each a Term; the trainer knows none of them by name."""

from __future__ import annotations

import dataclasses

from hmrnn.config import Config
from hmrnn.errors import InputError
from hmrnn.training.task import Term
from hmrnn.training.terms.reinforce import Reinforce
from hmrnn.training.terms.ridge import Ridge
from hmrnn.training.terms.steering import Bounds, Control, Pull, Rates
from hmrnn.training.terms.weights import Average, Decay


def make_terms(config: Config) -> list[Term]:
    """The techniques that ``config`` asks for, in the order in which they act."""
    m, d, r = config.model, config.detectors, config.regularise
    asked: dict[type[Term], object] = {
        Rates: d.rates,
        Pull: d.pull_weight,
        Reinforce: m.detectors and d.estimator == "reinforce",
        Decay: r.weight_decay,
        Bounds: m.detectors and any(d.bounds),
        Control: d.rate_control,
        Average: r.average,
        Ridge: m.ridge,
    }
    d = dataclasses.replace(d, rates=d.rates * m.directions)  # a rate for every detector, in both directions
    return [term(dataclasses.replace(config, detectors=d)) for term, on in asked.items() if on]


def needs_of(terms: list[Term], offers: frozenset[str]) -> frozenset[str]:
    """What the task must hand to the terms; InputError unless it ``offers`` all of it."""
    needs = {name: setting for term in terms for name, setting in term.needs.items()}
    for name, setting in needs.items():
        if name not in offers:
            raise InputError(
                f"needs the {name} of predictions, which data of this kind lack; leave it out", setting=setting
            )
    return frozenset(needs)
