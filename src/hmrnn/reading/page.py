"""What the page of ``hmrnn explore`` shows of a model: requests, what answers them, and the files of its panels."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.reading.sample import Seed as Seed


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The base of the bodies of requests."""

    bounds: ClassVar[Mapping[str, str]] = {}
    """By field, the limit of the page that bounds its size."""
    model: Annotated[int, Meta(ge=0, le=1000)] = 0
    """The number of a model in /api/models."""
    condition: Annotated[str, Meta(max_length=1000)] | None = None
    """Of a model that has one: a class, or numbers and commas."""


class Part(NamedTuple):
    """A part of an answer: what was found in a run of symbols."""

    found: Segmentation
    given: int = 0
    """How many of these symbols belong to the prompt."""
    more: Mapping[str, Any] = {}
    """What the scripts of the kind read beside it."""


Parts = Generator[Part, None, dict[str, Any] | None]
"""The work of an answer, in parts of some hundredths of a second each; what it returns is added to its last line."""


class Action(NamedTuple):
    """What answers the requests to an address."""

    answer: Callable[[Any, Any], Parts]
    """A method of the page. Nothing is done before its first part is asked for, in the thread of the models."""
    request: type[Request]
    form: Literal["lines", "whole", "figure"] = "lines"
    """Parts as lines of JSON, the JSON of the whole segmentation, or Figure 4 of the paper."""


class Page:
    """The page of one model; a kind of data whose models are shown has a subclass."""

    actions: ClassVar[Mapping[str, Action]]
    """By the last word of their addresses: /api/KIND/WORD."""
    static: ClassVar[Path | None] = None
    """A folder with panels.html, page.js and what they need; None for the panel that fits all kinds."""

    folder: ClassVar[str] = ""
    """Where these are under /static, if kinds share them; the name of the kind if not given."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def about(self) -> dict[str, Any]:
        """What the scripts of the kind are told of the model."""
        return {}
