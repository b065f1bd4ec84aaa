"""Requests to stop, and standard output that is no longer read."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def asked_to_stop() -> Iterator[list[str]]:
    """A list of the SIGINT and SIGTERM received so far; the second of each kind has its usual effect.

    A second SIGTERM ends the process even while it is in a long call and handlers in Python have to wait. Only the main
    thread receives signals: in other threads the list stays empty.
    """
    asked: list[str] = []
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: Any) -> None:
        asked.append(signal.Signals(number).name)
        signal.signal(number, before[signal.Signals(number)])

    in_main_thread = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGINT, signal.SIGTERM) if in_main_thread else ():
        before[number] = signal.signal(number, note)
    if before.get(signal.SIGTERM) is signal.SIG_DFL:
        _only_once(signal.SIGTERM)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _only_once(number: signal.Signals) -> None:
    """Let the operating system itself return to the default effect of a signal once Python's handler was called."""
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    handler = libc.signal(int(number), None)
    libc.sysv_signal(int(number), ctypes.c_void_p(handler))


def discard_stdout() -> None:
    """Drop what stdout could not write, and send further output to stderr."""
    if sys.stdout is sys.stderr:
        return
    with contextlib.suppress(OSError, AttributeError), open(os.devnull, "w") as nowhere:  # stdout may not be a file
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr
