"""Sequences as users give them, checked: texts, lists of tokens, or series of numbers."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
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


@dataclasses.dataclass(frozen=True)
class Name:
    """How errors name a list and, as ``name[k]``, its items."""

    whole: str
    item: str = ""
    """What an item of a file is, such as a sequence; empty for an argument in Python, whose items are X[0], X[1], …"""
    before: int = 0
    """Items of the file that come before the first."""

    def __getitem__(self, k: int) -> str:
        return f"{self.item} {self.before + k + 1} of {self.whole}" if self.item else f"{self.whole}[{k}]"

    def inside(self, k: int, item: str) -> Name:
        """The name of item ``k``, which is a list of ``item``."""
        return Name(self[k], item if self.item else "")


class Names(NamedTuple):
    """How errors name the sequences and the answers to them."""

    X: Name = Name("X")
    y: Name = Name("y")


ARGUMENTS = Names()


def names_in(file: str, before: int = 0) -> Names:
    """The names of sequences of a file, of which ``before`` others came first, and of the answers to them."""
    return Names(Name(file, "sequence", before), Name(file, "the answer to sequence", before))


def sequences(
    X: Any, name: Name = ARGUMENTS.X, *, tokens: bool | None = None, channels: tuple[str, ...] = ()
) -> list[Item]:
    """X as a list of sequences of one kind; InputError names the first that is wrong.

    A text is read character by character, a list of strings token by token. A series is an array (time, channels), or
    (time,) for one channel. An array (n, time) or (n, time, channels) is n series. With ``tokens`` a text is
    an error, and without it a list of tokens that all have more than one character; None: both may come. Channels of
    tables are taken by their names, those of ``channels`` or, without it, of the first table; others are left out.
    """
    if isinstance(X, str | bytes):
        raise InputError(f"{name.whole} must be a list of sequences ({_WANTED}); got one text: put it into a list")
    check_not_sparse(X, name.whole)
    X = iterable(X)
    # of a list NumPy would make a copy, in which each text has the memory of the longest
    whole = None if isinstance(X, list | tuple) else number_array(X)
    if whole is not None and whole.ndim < 2 and whole.size:
        what = f"numbers of shape {whole.shape}. Reshape your data: numbers[None] is one series"
        raise InputError(f"{name.whole} must be a list of sequences ({_WANTED}); got {what}")
    if hasattr(X, "columns") and whole is None:
        raise InputError(
            f"a table as {name.whole} must hold numbers alone, a series per row; take these columns, or the one "
            f"with the texts; {PER_STEP}"
        )
    if not isinstance(X, Iterable) or isinstance(X, Mapping | Set):
        raise InputError(f"{name.whole} must be a list of sequences ({_WANTED}); got {type(X).__name__}")
    given = list(X if whole is None else whole)
    found = [_item(one, name[k], tokens) for k, one in enumerate(given)]
    if not found:
        raise InputError(f"{name.whole} must hold at least one sequence; got none")
    wanted = channels or columns(given[0])
    found = [
        in_order(one, columns(table), wanted, name[k]) if isinstance(one, np.ndarray) else one
        for k, (one, table) in enumerate(zip(found, given))
    ]
    first = found[0]
    for k, one in enumerate(found):
        if isinstance(one, tuple) != isinstance(first, tuple):
            raise InputError(f"the sequences must be of one kind; {name[0]} and {name[k]} are symbols and numbers")
        if isinstance(given[k], str) != isinstance(given[0], str):
            raise InputError(f"the sequences must be of one kind; {name[0]} and {name[k]} are a text and tokens")
        if isinstance(one, np.ndarray) and isinstance(first, np.ndarray) and one.shape[1] != first.shape[1]:
            raise InputError(
                f"all series must have as many channels; {name[0]} has {first.shape[1]} and {name[k]} {one.shape[1]}"
            )
    return found


def check_not_sparse(X: Any, name: str) -> None:
    """InputError if X is a sparse matrix, as of SciPy or torch."""
    if hasattr(X, "toarray") or getattr(X, "layout", torch.strided) != torch.strided:
        raise InputError(f"{name} is sparse, and sparse data are not supported; give it by .toarray() or .to_dense()")


def iterable(given: Any) -> Any:
    """``given``, as an array if it can be one and cannot be iterated over."""
    return np.asarray(given) if hasattr(given, "__array__") and not isinstance(given, Iterable) else given


def check_given(y: Any) -> None:
    """InputError if there is no y."""
    if y is None:
        raise InputError("fitting requires y to be passed, but the target y is None")


def kind_of(one: Any) -> str:
    """What messages call a value: its type, of an array also the dtype."""
    if not isinstance(one, np.ndarray):
        return type(one).__name__
    return f"an array of {one.dtype}" + (". Complex data not supported" if one.dtype.kind == "c" else "")


def columns(one: Any) -> tuple[str, ...]:
    """The names of the columns of a table, if they are distinct strings; of anything else none."""
    names = tuple(getattr(one, "columns", ()))
    return names if all(isinstance(name, str) for name in names) and len(set(names)) == len(names) else ()


def not_numbers(table: Any) -> list[str]:
    """The columns of a table that do not hold numbers alone."""
    return [name for name in columns(table) if np.asarray(table[name]).dtype.kind not in "fiub"]


def about_columns(table: Any) -> str:
    """For an error: which columns of a table do not hold numbers alone; empty if all do, or if it is no table."""
    wrong = not_numbers(table)
    return f", in which {', '.join(wrong)} must be left out or turned into numbers" if wrong else ""


def in_order(series: np.ndarray, names: tuple[str, ...], wanted: tuple[str, ...], name: str) -> np.ndarray:
    """The columns ``wanted`` of a series (time, channels) whose columns have ``names``; all, if either is empty."""
    if not names or not wanted or names == wanted:
        return series
    if missing := [column for column in wanted if column not in names]:
        raise InputError(
            f"{name} must have the columns {', '.join(wanted)}; got {', '.join(names)}, without {', '.join(missing)}"
        )
    return series[:, [names.index(column) for column in wanted]]


def _item(one: Any, name: str, tokens: bool | None) -> Item:
    if isinstance(one, str):
        if not one:
            raise InputError(f"{name} is an empty text; leave it out")
        if tokens:
            raise InputError(f"{name} is a text, and this model reads lists of tokens; split the text into tokens")
        check_text(one, name)
        return tuple(one)
    if isinstance(one, Sequence | np.ndarray) and len(one) and isinstance(one[0], str):
        if not all(isinstance(token, str) and token for token in one):
            raise InputError(f"{name} must hold strings, none of them empty; got another among them")
        if tokens is False and all(len(token) > 1 for token in one):  # a few may be rare tokens
            raise InputError(f"{name} holds tokens such as {one[0]!r}, and this model reads single characters")
        check_text("".join(one), name)
        return tuple(map(str, one))
    array = number_array(one)
    if array is None or array.ndim not in (1, 2) or 0 in array.shape[1:]:
        listed = array is None and isinstance(one, list | tuple)
        numbers = [number_array(step) is not None for step in one] if listed else []
        if numbers and all(numbers):
            counts = sorted({np.size(step) for step in one})
            raise InputError(f"{name} must have as many channels at every step; got {counts[0]} and {counts[-1]}")
        if any(numbers):
            step = numbers.index(False)
            got = reprlib.repr(one[step])
            raise InputError(f"{name} must hold numbers alone; got {got} at step {step + 1}; fill gaps")
        got = kind_of(one) if array is None else f"shape {array.shape}" if array.ndim else repr(one)
        raise InputError(f"{name} must be one of {_WANTED}; got {got}{about_columns(one)}")
    if len(array) == 0:
        raise InputError(f"{name} is empty; leave it out")
    array = array.astype(np.float64).reshape(len(array), -1)
    if not np.isfinite(array).all():
        step = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise InputError(
            f"{name} must hold finite numbers; got NaN or infinity at step {step + 1}; fill gaps (as by np.interp), "
            "cut off padding, as lengths may differ, or leave the sequence out"
        )
    if (largest := np.abs(array).max()) > _LARGEST:
        raise InputError(f"{name} must hold numbers of at most {_LARGEST:g} in size; got {largest:g}")
    return array


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
            f"{name} holds {text[error.start]!r}, half of a surrogate pair, which is no character; remove it"
        ) from error


def number_array(given: Any) -> np.ndarray | None:
    """``given`` as an array of numbers; None if it is anything else, lists of unequal lengths included."""
    given = [for_numpy(one) for one in given] if isinstance(given, list | tuple) else for_numpy(given)
    try:
        array = np.asarray(given)
    except ValueError:
        return None
    return array if array.dtype.kind in "fiub" else None


def for_numpy(given: Any) -> Any:
    """A tensor or a table of numbers as NumPy reads it, a masked array with NaN where it is masked; others as given."""
    if isinstance(given, np.ma.MaskedArray) and given.mask.any():
        return np.ma.filled(given.astype(np.float64), np.nan)  # np.asarray would show what is masked
    if (names := columns(given)) and hasattr(given, "__array__") and not not_numbers(given):
        # column by column: of all at once NumPy may make objects, of truth values or missing integers beside numbers
        return np.stack([np.asarray(given[name], np.float64) for name in names], axis=-1)
    if not hasattr(given, "detach"):
        return given
    given = given.detach().cpu()
    return given.double() if given.is_floating_point() else given  # NumPy has no bfloat16
