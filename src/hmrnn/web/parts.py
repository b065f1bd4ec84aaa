"""The parts of an answer -> slices of work: lines of JSON, one JSON, or a figure."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import msgspec

from hmrnn.analysis.segmentation import Segmentation
from hmrnn.reading.page import Part, Parts
from hmrnn.web.work import Slices

SLICE = 0.04  # seconds of work that a slice is aimed at


def lines(parts: Parts) -> Slices:
    """A line of JSON for each part; the last one is ``{"end": true, ...}``."""
    began, count, end = time.monotonic(), 0, dict[str, Any]()
    for group in _grouped(parts, end):
        written = []
        for part in group:
            found = part.found.record()
            written.append(_line({"start": count, "segmentation": found, "given": part.given, **part.more}))
            count += len(part.found)
        yield b"".join(written)
    yield _line({"count": count, "seconds": round(time.monotonic() - began, 3), "end": True, **end})


def whole(parts: Parts) -> Slices:
    """The JSON of the whole segmentation."""
    found = yield from _joined(parts)
    yield found.to_json().encode()


def figure(parts: Parts, drawer: Executor) -> Slices:
    """Figure 4 as SVG, drawn by another thread; closing the generator ends the drawing."""
    found = yield from _joined(parts)
    stop = threading.Event()
    drawing = drawer.submit(_draw, found, stop)
    try:
        yield drawing
        yield drawing.result()
    finally:
        stop.set()
        drawing.cancel()


class _Stopped(Exception):
    """Nobody waits for the figure."""


def _draw(found: Segmentation, stop: threading.Event) -> bytes:
    from hmrnn.plots.style import styled
    from hmrnn.plots.text import figure4

    class File(io.BytesIO):
        def write(self, data: Any) -> int:
            if stop.is_set():
                raise _Stopped
            return super().write(data)

    file, drawn = File(), figure4(found)
    with styled():
        drawn.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _joined(parts: Parts) -> Any:
    """Slices without output, then the segmentation of all parts as the value of ``yield from``."""
    found: list[Segmentation] = []
    for group in _grouped(parts, {}):
        found += [part.found for part in group]
        yield b""
    return Segmentation.join(found)


def _grouped(parts: Parts, end: dict[str, Any]) -> Iterator[list[Part]]:
    """The parts of each slice; in the end, ``end`` has what they returned."""

    def every() -> Iterator[Part]:
        end.update((yield from parts) or {})

    group: list[Part] = []
    began = time.monotonic()
    for part in every():
        group.append(part)
        if time.monotonic() - began > SLICE:
            yield group
            group, began = [], time.monotonic()
    if group:
        yield group


def _line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"
