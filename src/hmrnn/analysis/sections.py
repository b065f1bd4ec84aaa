"""Section: a part of a result, defined once and shown on a terminal, in report.html or as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown(Protocol):
    """What draws itself in HTML, as in a notebook; on a terminal a Segmentation is drawn in lines."""

    def _repr_html_(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a result; what is empty is not shown."""

    title: str = ""
    text: str = ""
    """Sentences."""
    lines: str = ""
    """Lines whose ends and columns matter."""
    found: Shown | None = None
    table: Sequence[tuple[str, ...]] = ()
    """Rows of cells, the first row the header."""
    figure: Figure | None = None
    """A figure, which report.html shows."""
    record: Mapping[str, Any] | None = None
    """The section as JSON: one object, on one line."""
    width: int = 0
    """Columns of ``found`` on a terminal; 0 for all of them."""
    aside: bool = False
    """Whether it is about the output rather than a part of it, and goes to stderr."""
