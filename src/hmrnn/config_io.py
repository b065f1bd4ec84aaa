"""Configs and other dataclasses as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from hmrnn.errors import InputError

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """``value`` (a dataclass or plain data) as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def from_json(data: bytes, kind: type[T], source: str) -> T:
    """The ``kind`` that ``data`` holds; InputError names ``source`` and the field that does not fit."""
    try:
        plain = msgspec.json.decode(data)
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
