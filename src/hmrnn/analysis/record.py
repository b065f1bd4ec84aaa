"""The JSON of a segmentation: its fields, and how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from hmrnn.nn.output import Operation

LETTERS = "".join(operation.name[0] for operation in Operation)
"""UCF: one letter per operation, indexed by its number."""

Numbers = list[float | None]
"""Numbers of four decimals in JSON; null for what is not finite."""
Counts = list[Annotated[int, Meta(ge=0, le=2**63 - 1)]]


class LevelJSON(msgspec.Struct):
    """The segments of a level and what its detector gave, one entry per symbol in boundaries and probabilities."""

    level: int
    ends: list[int]
    segments: list[str]
    boundaries: list[Literal[0, 1]]
    probabilities: Numbers


class LayerJSON(msgspec.Struct):
    """What a layer did at every symbol, as the first letter of its Operation, and the l2 norm of its h."""

    layer: int
    updates: int
    operations: Annotated[str, Meta(pattern=f"^[{LETTERS}]*$")]
    norms: Numbers


class UpdatesJSON(msgspec.Struct):
    """Layer updates made, those of a stacked LSTM, and the share saved."""

    total: int
    dense: int
    saved: float


class SegmentationJSON(msgspec.Struct):
    """A segmentation as JSON: of `hmrnn segment --json`, of Segmentation.to_json and of the page."""

    text: str
    symbols: list[str]
    nested: bool
    levels: list[LevelJSON]
    layers: list[LayerJSON]
    updates: UpdatesJSON
    bits: Numbers | None
    multiply_adds: Annotated[Counts, Meta(description="of each symbol")] | None = None


def from_record(record: SegmentationJSON) -> dict[str, Any]:
    """The arguments of a Segmentation; ends, segments and counts are not read but computed from them."""
    T = len(record.symbols)

    def columns(rows: list[Any], kind: type) -> np.ndarray:
        return np.array(rows, kind).reshape(len(rows), T).T  # ValueError if a row is not of T numbers

    return {
        "symbols": tuple(record.symbols),
        "boundaries": columns([level.boundaries for level in record.levels], np.uint8),
        "probabilities": columns([level.probabilities for level in record.levels], np.float32),
        "operations": columns([[LETTERS.index(k) for k in layer.operations] for layer in record.layers], np.uint8),
        "norms": columns([layer.norms for layer in record.layers], np.float32),
        "bits": None if record.bits is None else np.array(record.bits, np.float32),
        "products": None if record.multiply_adds is None else np.array(record.multiply_adds, np.int64),
    }


def rounded(values: np.ndarray) -> Any:
    """``values`` as lists for JSON: four decimals, None for what is not finite."""
    numbers = np.round(values.astype(np.float64), 4)
    plain = numbers.astype(object)
    plain[~np.isfinite(numbers)] = None
    return plain.tolist()
