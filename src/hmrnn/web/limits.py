"""What one visitor may ask for, and for how long; the page reads these numbers from /api/models."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    body: int = 1 << 20
    """Bytes of a request."""
    text: int = 50_000
    """Characters of a text to read."""
    figure: int = 3_000
    """Characters of a text to draw as a figure."""
    prompt: int = 2_000
    """Characters to go on from."""
    length: int = 5_000
    """Symbols to generate."""
    points: int = 5_000
    """Points of a drawing to read, and of a line to write."""
    jobs: int = 16
    """Requests that may wait or be worked on at a time; the next one is told to come back."""
    ahead: int = 16
    """Parts of an answer that may wait for a client to take them; its work rests meanwhile."""
    seconds: float = 60.0
    """Time for the whole of an answer."""
    patience: float = 8.0
    """Time for a client to send its headers, to send its body, or to take what waits for it."""
    connections: int = 512
    """Connections at a time."""
