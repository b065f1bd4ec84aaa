"""The bodies of requests and answers, as types: the handlers read and write JSON with them."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hmrnn.analysis.record import SegmentationJSON
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal

Index = Annotated[int, Meta(ge=0, le=1000)]
"""The number of a model in /api/models."""
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
Length = Annotated[float, Meta(ge=-1e6, le=1e6)]
Count = Annotated[int, Meta(ge=0)]
Condition = Annotated[str, Meta(max_length=1000)] | None
"""Of a model that has one: a class, or numbers and commas."""


class ReadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Text for a model to read."""

    text: Annotated[str, Meta(min_length=1, extra={"limit": "text"})]
    model: Index = 0
    condition: Condition = None


class FigureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Text for a model to read, to be drawn as a figure."""

    text: Annotated[str, Meta(min_length=1, extra={"limit": "figure"})]
    model: Index = 0
    condition: Condition = None


class WriteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A prompt, and how to continue it."""

    prompt: Annotated[str, Meta(extra={"limit": "prompt"})] = ""
    model: Index = 0
    length: Annotated[int, Meta(ge=1, extra={"limit": "length"})] = 300
    temperature: Annotated[float, Meta(ge=0, le=10)] = 0.8
    top_k: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Seed = None
    condition: Condition = None


class DrawingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A drawing as steps: Δx, Δy (y downwards), and 1 where the pen is lifted after the point."""

    steps: Annotated[list[tuple[Length, Length, Literal[0, 1]]], Meta(min_length=2, extra={"limit": "points"})]
    model: Index = 0
    condition: Condition = None


class HandwritingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A line of handwriting to generate."""

    model: Index = 0
    points: Annotated[int, Meta(ge=1, extra={"limit": "points"})] = 400
    bias: Annotated[float, Meta(ge=0, le=10)] = 0.5
    seed: Seed = None
    condition: Condition = None


class Model(msgspec.Struct):
    """A model that the page was started with; alphabet has the characters it knows, null where symbols are others.

    ``condition`` has the classes of a model that is given a condition, or none if that is numbers; null without one.
    """

    model: Count
    name: str
    reads: Literal["text", "strokes"]
    layers: list[int]
    """The size of each layer, the lowest first."""
    operations: list[str]
    """Those that its layers can do."""
    parameters: Count
    unit: Literal["character", "byte", "point"]
    alphabet: str | None
    condition: list[str] | None = None


class Models(msgspec.Struct):
    """The models, and what a request may ask for."""

    version: str
    models: list[Model]
    limits: Limits


class Part(msgspec.Struct):
    """A part of an answer: the segmentation of a run of symbols."""

    start: Count
    """The position of the first of these symbols."""
    segmentation: SegmentationJSON
    given: Count = 0
    """How many of these symbols belong to the prompt."""
    steps: list[list[float | None]] | UnsetType = UNSET
    """Δx, Δy and pen of each point."""


class End(msgspec.Struct):
    """The last line of an answer in parts."""

    count: Count
    """Symbols of all parts."""
    seconds: float
    end: bool = True
    warning: str | UnsetType = UNSET
    """What is wrong with the handwriting, if anything."""
    notes: list[str] | UnsetType = UNSET
    """Which symbols of a text were read as others."""


def check(request: msgspec.Struct, limits: Limits) -> None:
    """Refuse a request for more than the limits allow."""
    for field, name in limited(type(request)).items():
        value, limit = getattr(request, field), getattr(limits, name)
        size = value if isinstance(value, int) else len(value)
        if size > limit:
            raise Refusal("too large", f"{field} may be {limit:,} at most; got {size:,}")


@functools.cache
def limited(kind: type) -> dict[str, str]:
    """The fields of a request that have a limit, and the name of it in :class:`Limits`."""
    fields = getattr(msgspec.inspect.type_info(kind), "fields", ())
    found = {field.encode_name: getattr(field.type, "extra", None) or {} for field in fields}
    return {name: extra["limit"] for name, extra in found.items() if "limit" in extra}
