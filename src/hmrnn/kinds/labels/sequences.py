"""Sequences as users give them, checked: texts, lists of tokens, or series of numbers."""

from __future__ import annotations

import contextlib
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch

from hmrnn.errors import InputError

Item = tuple[str, ...] | np.ndarray
"""One sequence: the characters of a text or tokens, or a series (time, channels) of float64."""
_WANTED = "texts, lists of tokens, or arrays (time, channels)"
PER_STEP = "of a table with a row per step make a list of tables, one per series, as by groupby"
_LARGEST = 1e100
_LARGEST_SCALED = 1e15  # what float32 can multiply and square


@contextlib.contextmanager
def of_file(file: str) -> Iterator[None]:
    """Within it errors about X, X[0], y[0] and y[0][1] name the sequences of a file, and the answers to them."""
    try:
        yield
    except InputError as error:
        if not re.fullmatch(r"[Xy](\[\d+\])*", error.setting):
            raise
        which = "sequence" if error.setting.startswith("X") else "the answer to sequence"
        places = [int(place) + 1 for place in re.findall(r"\d+", error.setting)]
        steps = [f"{what} {place} of " for what, place in zip((which, "item"), places)]
        raise InputError(f"{''.join(reversed(steps))}{file}: {error.message}") from error


def sequences(
    X: Any,
    name: str = "X",
    *,
    tokens: bool | None = None,
    channels: tuple[str, ...] = (),
    series: bool = False,
) -> list[Any]:
    """X as a list of sequences of one kind; InputError names the first that is wrong.

    A text is read character by character, a list of strings token by token. A series is an array (time, channels), or
    (time,) for one channel. An array (n, time) or (n, time, channels) is n series. With ``tokens`` a text is
    an error, and without it a list of tokens that all have more than one character; None: both may come. Channels of
    tables are taken by their names, those of ``channels`` or, without it, of the first table; others are left out.
    With ``series`` all must be such.
    """
    given, wrong = _listed(iterable(X))
    if wrong:
        raise InputError(f"must be a list of sequences ({_WANTED}); got {wrong}", setting=name)
    found = [
        _series(one, f"{name}[{k}]") if series else _item(one, f"{name}[{k}]", tokens) for k, one in enumerate(given)
    ]
    wanted = channels or columns(given[0])
    found = [
        in_order(one, columns(table), wanted, f"{name}[{k}]") if isinstance(one, np.ndarray) else one
        for k, (one, table) in enumerate(zip(found, given))
    ]
    forms = [
        f"a series of {one.shape[1]} channel(s)" if isinstance(one, np.ndarray)
        else "a text" if isinstance(table, str) else "a list of tokens"
        for one, table in zip(found, given)
    ]  # fmt: skip
    if odd := next((k for k, form in enumerate(forms) if form != forms[0]), 0):
        raise InputError(
            f"there must be sequences of one kind; this is {forms[odd]}, and the first is {forms[0]}",
            setting=f"{name}[{odd}]",
        )
    return found


class GivenSeries(NamedTuple):
    """What X holds: one series, or a list of them."""

    series: list[np.ndarray]
    """(time, channels) each."""
    single: bool
    """Whether X was one series, not a list of them."""
    flat: bool
    """Whether the first series was given as (time,)."""
    channels: tuple[str, ...]
    """The names of the channels; none if they have none."""


def series_of(X: Any, channels: tuple[str, ...] = (), least: int = 2) -> GivenSeries:
    """The series of X, each with ``least`` or more steps; ``channels`` as for :func:`sequences`."""
    X = list(X) if isinstance(X, Iterator) else X
    whole, listed = number_array(X), isinstance(X, list | tuple)
    single = hasattr(X, "columns") or (
        whole is not None and whole.ndim in (1, 2) and not (listed and any(getattr(one, "shape", ()) for one in X))
    )
    parts = [X] if single else X
    series = sequences(parts, channels=channels, series=True)
    first = parts[0]
    flat = getattr(number_array(first), "ndim", 2) == 1
    # a list of numbers in a list is no series: it could as well be the channels of one step
    if min(map(len, series)) < least or (flat and not single and not hasattr(first, "shape")):
        raise InputError(
            f"a series must be numbers of shape (time, channels), of {least} or more steps; got {reprlib.repr(first)}",
            setting="X",
        )
    return GivenSeries(series, single, flat, channels or columns(first))


def _listed(X: Any) -> tuple[list[Any], str]:
    """X as a list, and what is wrong with it as a whole, if anything."""
    if isinstance(X, str | bytes):
        return [], "one text: put it into a list"
    if hasattr(X, "toarray") or getattr(X, "layout", torch.strided) != torch.strided:
        return [], "a sparse array; sparse data are not supported, so give it by .toarray() or .to_dense()"
    # of a list NumPy would make a copy, in which each text has the memory of the longest
    whole = None if isinstance(X, list | tuple) else number_array(X)
    if whole is not None and whole.ndim < 2 and whole.size:
        return [], f"numbers of shape {whole.shape}. Reshape your data: numbers[None] is one series"
    if whole is None and getattr(X, "shape", ())[1:] == (1,):
        column = np.asarray(X)[:, 0]  # a table of one column, as ColumnTransformer gives texts
        X = column if all(isinstance(one, str) for one in column) else X
    if hasattr(X, "columns") and whole is None:
        return [], f"a table with other columns than of numbers; take these, or the one with the texts; {PER_STEP}"
    if not isinstance(X, Iterable) or isinstance(X, Mapping | Set):
        return [], type(X).__name__
    given = list(X if whole is None else whole)
    return given, "" if given else "none"


def iterable(given: Any) -> Any:
    """``given``, as an array if it can be one and cannot be iterated over."""
    return np.asarray(given) if hasattr(given, "__array__") and not isinstance(given, Iterable) else given


def columns(one: Any) -> tuple[str, ...]:
    """The names of the columns of a table, if they are distinct strings; of anything else none."""
    names = tuple(getattr(one, "columns", ()))
    return names if all(isinstance(name, str) for name in names) and len(set(names)) == len(names) else ()


def _not_numbers(table: Any) -> list[str]:
    """The columns of a table that do not hold numbers alone."""
    return [name for name in columns(table) if np.asarray(table[name]).dtype.kind not in "fiub"]


def in_order(series: np.ndarray, names: tuple[str, ...], wanted: tuple[str, ...], name: str) -> np.ndarray:
    """The columns ``wanted`` of a series (time, channels) whose columns have ``names``; all, if either is empty."""
    if not names or not wanted or names == wanted:
        return series
    if missing := [column for column in wanted if column not in names]:
        raise InputError(
            f"must have the columns {', '.join(wanted)}; got {', '.join(names)}, without {', '.join(missing)}",
            setting=name,
        )
    return series[:, [names.index(column) for column in wanted]]


def _item(one: Any, name: str, tokens: bool | None) -> Item:
    text = isinstance(one, str)
    if not text and not (isinstance(one, Sequence | np.ndarray) and len(one) and isinstance(one[0], str)):
        return _series(one, name)
    if not one or not all(isinstance(token, str) and token for token in one):
        got = "an empty text" if text else reprlib.repr(one)
        raise InputError(f"must be one of {_WANTED}; got {got}", setting=name)
    if (text and tokens) or (not text and tokens is False and all(len(token) > 1 for token in one)):
        reads = "lists of tokens; split the text" if text else "single characters"  # a few may be rare tokens
        raise InputError(f"must hold what this model reads, {reads}; got {reprlib.repr(one)}", setting=name)
    check_text("".join(one), name)
    return tuple(map(str, one))


def _series(one: Any, name: str) -> np.ndarray:
    return numbers_of(one, name, f"one of {_WANTED}")[0]


def numbers_of(
    given: Any, name: str, wanted: str = "numbers, or rows of as many numbers each"
) -> tuple[np.ndarray, bool]:
    """(N, numbers) in float64 of an array (N,) or (N, numbers), and whether it had rows; InputError if it is none."""
    array = number_array(given)
    if array is None or array.ndim not in (1, 2) or 0 in array.shape:
        raise InputError(f"must be {wanted}; got {_not_an_array(given, array)}", setting=name)
    whole = array.astype(np.float64).reshape(len(array), -1)
    fits = (np.abs(whole) <= _LARGEST).all(axis=1)  # NaN does not
    if not fits.all():
        k = int(fits.argmin())
        raise InputError(
            f"must hold numbers of at most {_LARGEST:g} in size, neither NaN nor infinity; got "
            f"{' '.join(f'{one:g}' for one in whole[k])}; fill gaps (as by np.interp), cut off padding, as lengths may "
            "differ, or leave it out",
            setting=f"{name}[{k}]",
        )
    return whole, array.ndim == 2


def _not_an_array(given: Any, array: np.ndarray | None) -> str:
    """What is wrong with what is no array (N,) or (N, numbers), for an error."""
    if array is not None:
        return f"numbers of shape {array.shape}" if array.ndim else repr(given)
    if wrong := _not_numbers(given):
        return f"a table in which {', '.join(wrong)} must be left out or turned into numbers"
    if isinstance(given, list | tuple) and given:
        rows = [number_array(one) for one in given]
        k = next((k for k, row in enumerate(rows) if row is None), None)
        sizes = sorted({row.size for row in rows if row is not None})
        return (
            f"rows of {sizes[0]} and {sizes[-1]} numbers" if k is None else f"{reprlib.repr(given[k])} at place {k + 1}"
        )
    if not isinstance(given, np.ndarray):
        return type(given).__name__
    return f"an array of {given.dtype}" + (". Complex data not supported" if given.dtype.kind == "c" else "")


def scale_of(whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel of (steps, channels); a constant has deviation 1."""
    deviation = whole.std(axis=0)
    varies = (np.ptp(whole, axis=0) > 0) & (deviation > 0)  # rounding may give a constant some deviation
    return whole.mean(axis=0), np.where(varies, deviation, 1.0)


def scaled(series: np.ndarray, mean: Any, deviation: Any, what: str = "a series") -> np.ndarray:
    """A series as a network reads it, in float32."""
    result = (series - mean) / deviation
    if (largest := np.abs(result).max()) > _LARGEST_SCALED:
        raise InputError(
            f"{what} must stay within {_LARGEST_SCALED:g} deviations of the training data; got {largest:g}"
        )
    found: np.ndarray = result.astype(np.float32)
    return found


def check_text(text: str, name: str) -> None:
    """InputError if a string holds a lone surrogate, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"holds {text[error.start]!r}, half of a surrogate pair, which is no character; remove it", setting=name
        ) from error


def number_array(given: Any) -> np.ndarray | None:
    """``given`` as an array of numbers; None if it is anything else, lists of unequal lengths included.

    Objects that are numbers, such as fractions and large integers, become floats.
    """
    given = [_for_numpy(one) for one in given] if isinstance(given, list | tuple) else _for_numpy(given)
    try:
        array = np.asarray(given)
        if array.dtype == object and array.size and all(isinstance(one, Real | Decimal) for one in array.flat):
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):  # sparse, of unequal lengths, or too large
        return None
    return array if array.dtype.kind in "fiub" else None


def _for_numpy(given: Any) -> Any:
    """A tensor or a table of numbers as NumPy reads it, a masked array with NaN where it is masked; others as given."""
    if isinstance(given, np.ma.MaskedArray) and given.mask.any():
        return np.ma.filled(given.astype(np.float64), np.nan)  # np.asarray would show what is masked
    if (names := columns(given)) and hasattr(given, "__array__") and not _not_numbers(given):
        # column by column: of all at once NumPy may make objects, of truth values or missing integers beside numbers
        return np.stack([np.asarray(given[name], np.float64) for name in names], axis=-1)
    if not hasattr(given, "detach"):
        return given
    given = given.detach().cpu()
    return given.double() if given.is_floating_point() else given  # NumPy has no bfloat16
