"""Checks of values that the sections of a config share; most name a section and its settings, separated by spaces."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hmrnn.errors import InputError

LARGEST = 2**31 - 1
LARGEST_NUMBER = 1e15
FILE_NAMES = ("path", "condition", "cache", "start_from")
"""Settings that name files, which need not be UTF-8."""


def _values(section: Any, name: str) -> tuple[Any, ...]:
    """The values that a setting holds; none if it is None."""
    value = getattr(section, name)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _require(ok: Callable[[float], bool], what: str, part: str, section: Any, names: str) -> None:
    """Raise InputError unless ``ok`` is true of all values of the settings ``names``, which are separated by spaces."""
    for name in names.split():
        for value in _values(section, name):
            if not ok(value):
                raise InputError(f"must {what}", setting=f"{part}.{name}", value=value)


counts = functools.partial(_require, lambda value: value >= 1, "be at least 1")
limited = functools.partial(_require, lambda value: value <= LARGEST, f"be at most {LARGEST}")
positive = functools.partial(_require, lambda value: value > 0, "be positive")
not_negative = functools.partial(_require, lambda value: value >= 0, "not be negative")
shares = functools.partial(_require, lambda value: 0 <= value < 1, "be at least 0 and less than 1")
seed = functools.partial(_require, lambda value: 0 <= value <= 2**62, "lie between 0 and 2**62")


def finite(part: str, section: Any) -> None:
    """JSON has no infinity, so a run with one could not be read again; float32 holds no products of larger numbers."""
    for field in dataclasses.fields(section):
        for value in _values(section, field.name):
            if isinstance(value, float) and not abs(value) <= LARGEST_NUMBER:
                rule = f"at most {LARGEST_NUMBER:g} in size" if math.isfinite(value) else "finite"
                raise InputError(f"must be {rule}", setting=f"{part}.{field.name}", value=value)


def typed(part: str, section: Any) -> None:
    """Raise InputError unless every value is of the type of its setting: a run with another could not be read again."""
    of_section: Any = type(section)
    for name, kind in _types(of_section).items():
        value = getattr(section, name)
        if not _is(value, kind):
            plain = "; give one of Python's, as by .item()" if hasattr(value, "item") else ""  # NumPy's, torch's
            raise InputError(f"must be {_described(kind)}{plain}", setting=f"{part}.{name}", value=repr(value))
        for text in _values(section, name):
            if isinstance(text, str) and not _encodable(text, name in FILE_NAMES):
                raise InputError("must be text that UTF-8 can encode", setting=f"{part}.{name}", value=repr(text))


def _encodable(text: str, name: bool) -> bool:
    """Whether UTF-8 can encode a text; the ``name`` of a file may hold other bytes."""
    try:
        text.encode("utf-8", "surrogateescape" if name else "strict")
    except UnicodeEncodeError:
        return False
    return True


_types = functools.cache(get_type_hints)


def _is(value: Any, kind: Any) -> bool:
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in arguments)
    if origin is UnionType:
        return any(_is(value, each) for each in arguments)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if isinstance(value, tuple) and arguments[-1] is ... else arguments
        return type(value) is tuple and len(value) == len(kinds) and all(map(_is, value, kinds))
    return type(value) is kind or (kind is float and type(value) is int)  # JSON takes no number of NumPy's


_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "True or False", type(None): "None"}


def _described(kind: Any) -> str:
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is UnionType:
        return " or ".join(map(_described, arguments))
    if origin is tuple:
        count = "" if arguments[-1] is ... else f"{len(arguments)} "
        return f"a tuple of {count}{_described(arguments[0]).removeprefix('a ')}s"
    return _NAMES[kind]
