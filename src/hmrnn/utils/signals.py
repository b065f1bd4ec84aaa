"""What comes from outside: being asked to stop, where that is safe, and output that nobody takes any more."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
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


def let_go_of_output() -> None:
    """After stdout could not be written: what is in its buffer is dropped, what is still to be said goes to stderr."""
    if sys.stdout is sys.stderr:
        return
    with contextlib.suppress(OSError, AttributeError), open(os.devnull, "w") as nowhere:  # it may be no file at all
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr
