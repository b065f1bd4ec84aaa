"""The lines of metrics.jsonl: what each must hold, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hmrnn.errors import InputError
from hmrnn.utils.files import content

LARGEST = 1 << 30
"""Bytes of the largest metrics.jsonl that is read; a line has a few hundred."""


class _Line(msgspec.Struct, tag_field="event"):
    """What every line holds; a line may hold more than its type says."""

    step: int
    epoch: float


class _Detector(_Line, tag="detector"):
    pass


class _Measured(_Line, kw_only=True):
    rates: list[float]
    bits: float = 0.0
    nats: float = 0.0


class _Train(_Measured, tag="train", kw_only=True):
    symbols_per_second: float


class _Valid(_Measured, tag="valid", kw_only=True):
    updates: Annotated[list[float], msgspec.Meta(min_length=1)]
    multiply_adds: float


def read_metrics(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, each checked; with ``size`` those in its first bytes."""
    try:
        data = content(path, LARGEST)
        if data is None:
            raise InputError(f"{path} is damaged: it has more than {LARGEST:,} bytes")
        written = data[:size].decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read, or is damaged: {error}; expected a run directory") from error
    lines: list[dict[str, Any]] = []
    shape = None
    for number, text in enumerate(written, start=1):
        try:
            line = json.loads(text)
            msgspec.convert(line, _Train | _Valid | _Detector)
            if "rates" in line:
                own = [*({"bits", "nats"} & line.keys()), len(line["rates"])]
                shape = shape or own
                if len(own) != 2 or own != shape:
                    raise ValueError("it must hold bits or nats, and as many rates as the lines before it")
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InputError(f"{path} is damaged in line {number}: {error}; fix or remove that line") from error
        lines.append(line)
    return lines
