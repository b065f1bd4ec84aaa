"""Settings that are changed by their names, and what follows from a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from hmrnn.config.checks import HM_LSTM, check_types, settings_of, value_of

C = TypeVar("C")


def replaced(base: C, given: Mapping[str, Any]) -> C:
    """``base`` with the settings in ``given``, named in full, replaced."""
    sections: dict[str, dict[str, Any]] = {"": {}}
    for name, value in given.items():
        section, _, field = name.rpartition(".")
        sections.setdefault(section, {})[field] = value
    own = sections.pop("")
    own |= {name: dataclasses.replace(getattr(base, name), **fields) for name, fields in sections.items()}
    return dataclasses.replace(base, **own)  # type: ignore[type-var]


def fit(config: Any, preset: Any, asked: Collection[str] = ()) -> Any:
    """``config``, which was made from ``preset`` by changes, with settings that suit its network.

    Of the sizes of a preset, fewer layers take the first, and more repeat the last. Its rates are for the two detectors
    of three layers: fewer layers take the first of them, and more continue in the ratio of the last two. What else the
    preset sets and the network, or another changed setting, has no use for gets its default, unless ``asked`` for.
    Rates that only a prior can hold have its weight.
    """
    check_types(config)  # sizes of more layers than there can be would fill the memory
    model, sizes, rates = config.model, preset.model.hidden_size, preset.detectors.rates
    if model.hidden_size == sizes and len(sizes) not in (1, model.num_layers):
        sizes = (*sizes, *sizes[-1:] * model.num_layers)[: max(model.num_layers, 1)]
        config = replaced(config, {"model.hidden_size": sizes})
    if config.detectors.rates == rates:
        followed = {"detectors.rates": _as_many(rates, model.detectors)}
        config, preset = replaced(config, followed), replaced(preset, followed)
    if not model.gated and config.train.optimizer == preset.train.optimizer:
        config = replaced(config, {"train.optimizer": "adam"})
    if model.ridge and config.train.epochs == preset.train.epochs:
        config = replaced(config, {"train.epochs": 1})
    only_prior = config.detectors.rates and model.rnn not in HM_LSTM.values
    if only_prior and config.detectors.rate_weight == preset.detectors.rate_weight == 0:
        config = replaced(config, {"detectors.rate_weight": 0.0 if "detectors.rate_weight" in asked else 1.0})
    for one in settings_of(type(config), config):
        if one.name not in asked and one.unmet(config) and one.value == value_of(preset, one.name):
            config = replaced(config, {one.name: one.field.default})
    return config


def _as_many(rates: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The first ``count`` rates; missing ones continue in the ratio of the last two, a single one by quarters."""
    if not rates:
        return ()
    ratio = rates[-1] / rates[-2] if len(rates) > 1 else 0.25
    further = (round(rates[-1] * ratio**k, 4) for k in range(1, count - len(rates) + 1))
    return (*rates[:count], *further)
