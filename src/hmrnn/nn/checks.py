"""Checks of the arguments of modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta

from hmrnn.config.checks import Count, checked

Sizes = Annotated[tuple[Count, ...], Meta(min_length=1)]
"""The sizes of layers."""


def argument(name: str, value: Any, kind: Any) -> Any:
    """``value`` as a type with bounds has it, also for arrays; InputError about ``name`` if the type forbids it."""
    return checked(name, _plain(value), kind)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [*map(_plain, value)] if isinstance(value, Iterable) and not isinstance(value, str) else value
