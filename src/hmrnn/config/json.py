"""Configs and other dataclasses as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec

from hmrnn.errors import InputError

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """``value`` (a dataclass or plain data) as indented JSON; names of files that are not UTF-8 have escapes."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    except UnicodeEncodeError:  # msgspec writes no lone surrogates, which stand for the bytes of such names
        text = json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace") + b"\n"


def decoded(data: bytes) -> Any:
    """Plain data, with escapes for the bytes of names of files that are not UTF-8."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if rb"\udc" not in data:
            raise
        return json.loads(data)


def from_json(data: bytes, kind: type[T], source: str) -> T:
    """The ``kind`` that ``data`` holds, as :func:`fitting` has it."""
    try:
        plain = decoded(data)
    except (ValueError, RecursionError) as error:  # those of msgspec, json and Unicode are ValueErrors
        raise InputError(f"{source} is damaged: {error}") from error
    return fitting(plain, kind, f"{source}, which is damaged, or of another version of hmrnn")


def fitting(plain: Any, kind: type[T], source: str) -> T:
    """Plain data as a ``kind``; InputError about what does not fit names it, and ``source``."""
    try:
        found: Any = getattr(kind, "of_plain", lambda plain: msgspec.convert(plain, kind))(plain)
        for unknown in unknown_in(plain, found):
            raise InputError("there is no such setting", setting=unknown)
    except msgspec.ValidationError as error:
        what, _, place = re.sub(r"\[[\d.]*\]", "", str(error)).partition(" - at `$.")
        setting, value = place.rstrip("`"), plain
        for name in setting.split("."):
            value = value.get(name) if isinstance(value, dict) else value
        raise InputError(f"{what}, in {source}", setting=setting, value=value if setting else None) from error
    except InputError as error:
        raise InputError(f"{error.message}, in {source}", setting=error.setting, value=error.value) from error
    return cast(T, found)


def unknown_in(plain: Any, found: Any, prefix: str = "") -> Iterator[str]:
    """Names in ``plain`` that the dataclasses of ``found`` do not have; msgspec ignores them."""
    if dataclasses.is_dataclass(found):
        for name in plain:
            if name not in {field.name for field in dataclasses.fields(found)}:
                yield prefix + name
            else:
                yield from unknown_in(plain[name], getattr(found, name), f"{prefix}{name}.")
