"""Dataclasses as TOML, which the standard library reads and does not write."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

TAG = "format"
"""The setting that says of which class a table is."""


def to_toml(value: Any, *, defaults: bool = True, name: str = "") -> str:
    """A dataclass as a table called ``name``, nested ones as tables of their own.

    Without ``defaults`` it has the settings that differ from theirs. What is None is
    left out: TOML has no word for it.
    """
    own, tables = [], []
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if dataclasses.is_dataclass(one):
            tables.append(to_toml(one, defaults=defaults, name=f"{name}.{field.name}".lstrip(".")))
        elif one is not None and (defaults or one != field.default or field.name == TAG):
            own.append(f"{field.name} = {_literal(one)}\n")
    head = [f"[{name}]\n"] if own and name else []
    return "\n".join(filter(None, ["".join(head + own), *tables]))


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
