"""Settings that are changed by their names, and what follows from a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from hmrnn.config.checks import check_types
from hmrnn.config.detectors import DetectorConfig
from hmrnn.config.regularise import RegulariseConfig
from hmrnn.errors import InputError

C = TypeVar("C")


def build(base: C, given: Mapping[str, Any]) -> C:
    """``base`` with the settings in ``given``, named in full, replaced."""
    sections: dict[str, dict[str, Any]] = {"": {}}
    for name, value in given.items():
        section, _, field = name.rpartition(".")
        sections.setdefault(section, {})[field] = value
    own = sections.pop("")
    own |= {name: dataclasses.replace(getattr(base, name), **fields) for name, fields in sections.items()}
    return dataclasses.replace(base, **own)  # type: ignore[type-var]


def fit(config: Any, preset: Any) -> Any:
    """``config``, which was made from ``preset`` by flags, with sizes and detector settings that suit its network.

    Of the sizes of a preset, fewer layers take the first, and more repeat the last. Its rates are for the two detectors
    of three layers: fewer layers take the first of them, more continue in the ratio of the last two, and a network that
    finds no boundaries has neither rates nor pulls. A reservoir has no matrices of gates to train, so Adam takes the
    place of a preset's Muon. InputError if a flag sets detectors of a network that has none.
    """
    check_types(config)  # sizes of more layers than there can be would fill the memory
    sizes = preset.model.hidden_size
    if config.model.hidden_size == sizes and len(sizes) not in (1, config.model.num_layers):
        sizes = (*sizes, *sizes[-1:] * config.model.num_layers)[: max(config.model.num_layers, 1)]
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_size=sizes))
    model, detectors, given = config.model, config.detectors, preset.detectors
    if model.rnn == "echo-state" and config.train.optimizer == preset.train.optimizer:
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, optimizer="adam", adam_rate=1.0))
    if model.ridge:
        config = _in_one_pass(config, preset)
    if model.detectors == 0:
        for field in dataclasses.fields(detectors):
            if getattr(detectors, field.name) != getattr(given, field.name):
                raise InputError(
                    f"{model.rnn} with model.num_layers {model.num_layers} has no detectors; leave it out",
                    setting=f"detectors.{field.name}",
                )
        return dataclasses.replace(config, detectors=DetectorConfig())
    rates = detectors.rates
    if rates == given.rates:
        rates = _as_many(rates, model.detectors if model.rnn == "hm-lstm" else 0)
    off: dict[str, Any] = (
        {"start_at_rates": False, "rate_control": 0.0, "pull_weight": 0.0} if given.rates and not rates else {}
    )
    off = {name: value for name, value in off.items() if getattr(detectors, name) == getattr(given, name)}
    return dataclasses.replace(config, detectors=dataclasses.replace(detectors, rates=rates, **off))


def _in_one_pass(config: Any, preset: Any) -> Any:
    """``config`` without the epochs and the regularisation of the preset, which ridge regression does not have."""
    epochs = config.train.epochs if config.train.epochs != preset.train.epochs else 1
    off = RegulariseConfig()
    kept = {
        field.name: getattr(off, field.name)
        for field in dataclasses.fields(off)
        if getattr(config.regularise, field.name) == getattr(preset.regularise, field.name)
    }
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, epochs=epochs),
        regularise=dataclasses.replace(config.regularise, **kept),
    )


def _as_many(rates: tuple[float, ...], count: int) -> tuple[float, ...]:
    """The first ``count`` rates; missing ones continue in the ratio of the last two, a single one by quarters."""
    if not rates:
        return ()
    ratio = rates[-1] / rates[-2] if len(rates) > 1 else 0.25
    further = (round(rates[-1] * ratio**k, 4) for k in range(1, count - len(rates) + 1))
    return (*rates[:count], *further)
