"""Bounds on the size, number and time of requests; the page reads them from /api/models."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may ask for."""

    body: int = 1 << 20
    """Bytes of the body of a request."""
    text: int = 50_000
    """Characters of a text to read."""
    figure: int = 3_000
    """Characters of a text to draw as a figure."""
    prompt: int = 2_000
    """Characters of a prompt."""
    length: int = 5_000
    """Symbols to generate."""
    points: int = 5_000
    """Points of a drawing to read, or of handwriting to generate."""
    jobs: int = 16
    """Requests that may wait or be worked on at a time; the next one is answered with 503."""
    seconds: float = 60.0
    """Seconds for the whole answer to a request."""
    patience: float = 8.0
    """Seconds for a client to send its headers, to send its body, or to read what was sent to it."""
    connections: int = 256
    """Connections at a time; one more, and the one that has been open longest without a request is closed."""
