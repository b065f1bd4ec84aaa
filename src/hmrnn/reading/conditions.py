"""Conditions: what is known of each sequence beforehand, a class or numbers, read from a file."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmrnn.config import Config, ModelConfig
from hmrnn.config.changes import replaced
from hmrnn.errors import InputError

MOST_CLASSES = 10_000


def read_conditions(spec: str) -> tuple[str, ...]:
    """The rows of FILE, or of the column of that name for FILE:COLUMN; a line end at the very end adds no row."""
    name, column = os.path.expanduser(spec), None
    if not os.path.exists(name) and ":" in name:
        name, column = name.rsplit(":", 1)
    try:
        text = Path(name).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {name} as UTF-8 text: {error}", setting="data.condition") from error
    if column is None:
        return tuple(line.strip() for line in text.splitlines())
    rows = csv.DictReader(text.splitlines(), delimiter="\t" if Path(name).suffix == ".tsv" else ",")
    found = [row.get(column) for row in rows]
    names = rows.fieldnames or ()
    if column not in names or None in found:
        row, known = found.index(None) + 2 if column in names else 1, ", ".join(names)
        raise InputError(f"row {row} of {name} has no column {column!r} of {known}", setting="data.condition")
    return tuple(str(each).strip() for each in found)


def numbers(row: str | Sequence[float]) -> list[float] | None:
    """The finite numbers of a row; None if it holds anything else."""
    parts = re.split(r"[,\s]+", row.strip(", \t")) if isinstance(row, str) else row
    try:
        values = [float(part) for part in parts]
    except (TypeError, ValueError):
        return None
    return values if np.isfinite(values).all() else None


def fitted(config: Config, rows: Sequence[str]) -> Config:
    """``config`` with the classes, or the number of numbers, of the conditions of all sequences.

    Rows are numbers if all of them are and one has a decimal point or more than one number; else they are classes.
    """
    if not rows or config.model.conditioned:
        return config
    values = [numbers(row) for row in rows]
    if None not in values and any("." in row or len(found or ()) > 1 for row, found in zip(rows, values)):
        counts = {len(found or ()) for found in values}
        if len(counts) > 1:
            raise InputError(f"every row must have as many numbers; got {sorted(counts)}", setting="data.condition")
        return replaced(config, {"model.condition_numbers": counts.pop()})
    classes = tuple(sorted(set(rows)))
    if len(classes) > MOST_CLASSES:
        raise InputError(
            f"has {len(classes)} different rows; at most {MOST_CLASSES} classes are taken", setting="data.condition"
        )
    return replaced(config, {"model.classes": classes})


def encoded(rows: Sequence[str] | None, config: ModelConfig) -> np.ndarray | None:
    """:func:`encode` for the conditions of a corpus; None for a model that takes none."""
    if not config.conditioned:
        return None
    if rows is None:
        raise InputError("this model is trained with a condition, and the data have none", setting="data.condition")
    return encode(rows, config)


def encode(rows: Sequence[str | Sequence[float]], config: ModelConfig) -> np.ndarray:
    """Conditions as a model takes them: indices (n,) of classes, or (n, numbers) float32."""
    if not config.conditioned:
        raise InputError("this model was trained without a condition; leave it out")
    if config.classes:
        places = {name: place for place, name in enumerate(config.classes)}
        unknown = [row for row in rows if not isinstance(row, str) or row not in places]
        if unknown:
            some = ", ".join([*config.classes[:10], *["..."] * (len(config.classes) > 10)])
            raise InputError(f"a condition must be one of the classes {some}; got {unknown[0]!r}")
        return np.array([places[row] for row in rows], np.int64)  # type: ignore[index]
    values = [numbers(row) for row in rows]
    for row, found in zip(rows, values):
        if found is None or len(found) != config.condition_numbers:
            raise InputError(f"a condition must be {config.condition_numbers} finite numbers; got {row!r}")
    return np.array(values, np.float32)
