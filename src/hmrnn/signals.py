"""Stopping long work from outside, where it is safe: asked_to_stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def asked_to_stop() -> Iterator[list[str]]:
    """The names of the SIGINTs and SIGTERMs that have come; a second one of a kind has its usual effect.

    Signals reach the main thread alone: in another one nobody asks.
    """
    asked: list[str] = []
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: Any) -> None:
        asked.append(signal.Signals(number).name)
        signal.signal(number, before[signal.Signals(number)])

    in_main_thread = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGINT, signal.SIGTERM) if in_main_thread else ():
        before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
