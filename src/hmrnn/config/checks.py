"""Checks of numbers that the sections of a config share; each names a section and its settings, separated by spaces."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from hmrnn.errors import InputError

LARGEST = 2**31 - 1


def _values(section: Any, name: str) -> tuple[Any, ...]:
    """The values that a setting holds; none if it is None."""
    value = getattr(section, name)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _require(ok: Callable[[float], bool], what: str, part: str, section: Any, names: str) -> None:
    """Raise InputError unless ``ok`` is true of all values of the settings ``names``, which are separated by spaces."""
    for name in names.split():
        for value in _values(section, name):
            if not ok(value):
                raise InputError(f"{part}.{name} must {what}; got {value}")


counts = functools.partial(_require, lambda value: value >= 1, "be at least 1")
limited = functools.partial(_require, lambda value: value <= LARGEST, f"be at most {LARGEST}")
positive = functools.partial(_require, lambda value: value > 0, "be positive")
not_negative = functools.partial(_require, lambda value: value >= 0, "not be negative")
shares = functools.partial(_require, lambda value: 0 <= value < 1, "be at least 0 and less than 1")
seed = functools.partial(_require, lambda value: 0 <= value <= 2**62, "lie between 0 and 2**62")


def finite(part: str, section: Any) -> None:
    """JSON has no infinity, so a run with one could not be read again."""
    for field in dataclasses.fields(section):
        for value in _values(section, field.name):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{part}.{field.name} must be finite; got {value}")
