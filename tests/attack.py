"""Inputs that are damaged at random from a fixed seed, and what must come of them.

A target takes damaged bytes and must either use them or raise the package's own error. It has bounded time for each
input and bounded memory for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hmrnn.errors import InputError

SECONDS = 20
"""For one input."""
ROOM = 1 << 30
"""Bytes of address space that all inputs of a target may take beyond what was there before."""

INTERESTING = (b"\0", b"\xff", b"\n", b'"', b"{", b"[", b"]", b"}", b"<", b"&", b"-1", b"1e999", b"NaN", b"null",
               b"\xef\xbb\xbf", b'"\\udce9"', b"\xed\xa0\x80", b"9" * 40, b"../", b"\0\0\0\0", b"\xff\xff\xff\x7f",
               b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80", b"<!DOCTYPE", b"[" * 3000, b'{"a":' * 500)  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """``data`` with one to four things wrong with it."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, length = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 4, 16, 64))
        match rng.randrange(8):
            case 0 if out:
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[rng.randrange(len(out))] = rng.randrange(256)
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case 4:
                del out[at:]
            case 5:
                out[at:at] = out[at : at + length] * rng.choice((1, 2, 50))
            case 6:
                there = rng.randrange(len(out) + 1)
                out[at : at + length] = out[there : there + length]
            case _:
                out[at : at + rng.choice((0, 0, length))] = rng.choice(INTERESTING)
    return bytes(out)


@dataclasses.dataclass
class Outcome:
    """What came of the inputs of a target."""

    inputs: int = 0
    taken: int = 0
    refused: int = 0
    reasons: set[str] = dataclasses.field(default_factory=set)
    """Different messages, cut to their beginnings."""

    def refuse(self, message: str) -> None:
        assert "\n" not in message, message
        assert len(message) <= 1000, f"a message of {len(message):,} characters: {message[:100]}"
        self.refused += 1
        self.reasons.add(re.sub(r"\d+|/\S*/", "", message)[:60])


Target = Callable[[random.Random], None]
"""Makes one input, damaged at random, and uses it; InputError is fine, and nothing else is."""


class TookTooLong(BaseException):
    """An input was worked on for longer than ``SECONDS``."""


@contextlib.contextmanager
def bounded_memory(room: int = ROOM) -> Iterator[None]:
    """Only so much more address space can be had: what wants more fails with MemoryError, which no target may raise."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def bounded_time() -> Iterator[Callable[[], None]]:
    """A function to call before each input."""

    def late(number: int, frame: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, SECONDS) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attack(target: Target, count: int, seed: int, seconds: float = math.inf) -> Outcome:
    """Give ``target`` so many inputs, or as many as ``seconds`` allow.

    An error that is not the package's own names the input that raised it.
    """
    outcome, until = Outcome(), time.monotonic() + seconds
    with bounded_memory(), bounded_time() as start:
        for number in range(count):
            if time.monotonic() > until:
                break
            start()
            try:
                target(random.Random(f"{seed} {number}"))
                outcome.taken += 1
            except InputError as error:
                outcome.refuse(str(error))
            except BaseException as error:
                raise AssertionError(f"seed {seed}, input {number}: {type(error).__name__}: {error}") from error
            outcome.inputs += 1
    return outcome
