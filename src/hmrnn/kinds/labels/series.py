"""Series of numbers as users give them, checked: one, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from hmrnn.errors import InputError
from hmrnn.kinds.labels.sequences import about_columns, check_not_sparse, columns, for_numpy, in_order

Series = np.ndarray | Tensor | Sequence[Any]


class GivenSeries(NamedTuple):
    """What X holds."""

    series: list[np.ndarray]
    """(time, channels) each."""
    single: bool
    """Whether X was one series, not a list of them."""
    flat: bool
    """Whether the first series was given as (time,)."""
    names: tuple[str, ...]
    """Those of the channels; none if they have none."""


def series_of(X: Series, channels: tuple[str, ...] = (), *, least: int = 2) -> GivenSeries:
    """The series of X, each with ``least`` or more steps.

    Channels of tables are taken by their names, in the order ``channels`` or, without it, in that of the first table.
    """
    check_not_sparse(X, "X")
    if isinstance(X, Mapping | Set):  # a set has no order
        raise InputError(f"X must be an array (time, channels) or a list of them; got {type(X).__name__}")
    parts = None if hasattr(X, "shape") or not isinstance(X, Iterable) else list(X)
    single = False
    if parts is None or (parts and not any(getattr(part, "shape", ()) for part in parts)):  # one series as nested lists
        whole = _array(X if parts is None else parts)
        if whole.ndim == 0:
            raise InputError(f"X must be an array (time, channels) or a list of them; got {type(X).__name__}")
        single = whole.ndim == 2 or (whole.ndim == 1 and whole.dtype != object)
        parts = [whole] if single else list(whole)
    series = [_array(part) for part in parts]
    flat = len(series) > 0 and series[0].ndim == 1
    series = [  # a list of numbers in a list is no series: it could as well be the channels of one step
        one[:, None] if one.ndim == 1 and (single or hasattr(part, "shape")) else one
        for one, part in zip(series, parts)
    ]
    if not series:
        raise InputError("X must be an array (time, channels) or a list of them; got an empty list")
    tables = [X] if single else parts
    for one, table in zip(series, tables):
        if one.ndim != 2 or one.dtype.kind not in "fiu" or len(one) < least or one.shape[1] < 1:
            raise InputError(
                f"a series must be numbers of shape (time, channels), of {least} or more steps; got {one.dtype} of "
                f"shape {one.shape}{about_columns(table)}"
            )
        if not np.isfinite(one).all():
            raise InputError("a series must hold finite numbers; got NaN or infinity; fill gaps, as by np.interp")
        if (largest := float(np.abs(one).max())) > 1e100:
            raise InputError(f"a series must hold numbers of at most 1e+100 in size; got {largest:g}")
        if one.shape[1] != series[0].shape[1]:
            raise InputError(f"all series must have as many channels; got {series[0].shape[1]} and {one.shape[1]}")
    names = channels or columns(tables[0])
    ordered = [in_order(one, columns(table), names, "a series") for one, table in zip(series, tables)]
    return GivenSeries([one.astype(np.float64) for one in ordered], single, flat, names)


def _array(given: Any) -> np.ndarray:
    given = for_numpy(given)
    try:
        return np.asarray(given)
    except ValueError:  # lists of unequal lengths
        return np.asarray(given, dtype=object)
