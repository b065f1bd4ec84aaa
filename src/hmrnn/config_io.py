"""Configs and other dataclasses as JSON, and configs with the setting names of earlier versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from hmrnn.config import Config, DetectorConfig
from hmrnn.errors import InputError

T = TypeVar("T")
OLD_NAMES = {
    "model.boundary": "detectors.estimator",
    "model.on_copy": "detectors.on_copy",
    "train.slope_rate": "detectors.slope",
    "train.slope_max": "detectors.slope",
    "train.detector_bias": "detectors.bias",
    "train.detector_rates": "detectors.rates",
    "train.detector_feedback": "detectors.bounds",
    "train.detector_recurrence": "detectors.bounds",
    "regularise.rate_targets": "detectors.rates",
    "regularise.rate_weight": "detectors.rate_weight",
    "regularise.rate_control": "detectors.rate_control",
    "regularise.surprise_weight": "detectors.pull_weight",
    "regularise.surprise_kind": "detectors.pull_to",
    "regularise.surprise_lag": "detectors.pull_delay",
    "regularise.surprise_margin": "detectors.pull_margin",
}
"""Settings that were renamed, with their new names."""


def upgrade(plain: Any) -> Any:
    """A stored config with today's names of its settings; anything else is returned unchanged.

    Rates to start at that differ from the target rates are lost: they had an effect before the first update only.
    """
    if (
        not isinstance(plain, dict)
        or "detectors" in plain
        or not all(isinstance(part, dict) for part in plain.values())
    ):
        return plain
    result = {name: dict(part) for name, part in plain.items()}
    old = {
        name: result[section].pop(field)
        for name, (section, field) in ((name, name.split(".")) for name in OLD_NAMES)
        if field in result.get(section, {})
    }
    if not old:
        return plain
    new = {OLD_NAMES[name].split(".")[1]: value for name, value in old.items()}
    slope, bounds = DetectorConfig.slope, DetectorConfig.bounds
    new["slope"] = [old.get("train.slope_rate", slope[0]), old.get("train.slope_max", slope[1])]
    new["bounds"] = [old.get("train.detector_feedback", bounds[0]), old.get("train.detector_recurrence", bounds[1])]
    start, targets = old.get("train.detector_rates", []), old.get("regularise.rate_targets", [])
    new |= {"rates": targets or start, "start_at_rates": bool(start)}
    if start and not targets:
        new["rate_weight"] = 0.0
    if new.get("pull_to") == "expected":
        new["pull_to"] = "uncertainty"
    return result | {"detectors": new}


def to_json(value: Any) -> bytes:
    """``value`` (a dataclass or plain data) as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def from_json(data: bytes, kind: type[T], source: str) -> T:
    """The ``kind`` that ``data`` holds; a Config may have the names of earlier versions.

    InputError names ``source`` and the field that does not fit.
    """
    try:
        plain = msgspec.json.decode(data)
        if kind is Config:
            plain = upgrade(plain)
        found: T = msgspec.convert(plain, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source} is damaged, or of another version of hmrnn: {error}") from error
    if unknown := next(_unknown(plain, found), None):
        raise InputError(f"{source} is damaged, or of a newer version of hmrnn: there is no setting {unknown}")
    return found


def _unknown(plain: Any, found: Any, prefix: str = "") -> Iterator[str]:
    """Names in ``plain`` that the dataclasses of ``found`` do not have; msgspec ignores them."""
    if dataclasses.is_dataclass(found):
        for name in plain:
            if name not in {field.name for field in dataclasses.fields(found)}:
                yield prefix + name
            else:
                yield from _unknown(plain[name], getattr(found, name), f"{prefix}{name}.")
