"""Room for events in the logs of the cuda engine that leaves out rows: how much, and whether it was enough."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch

from hmrnn.ops.cuda.layer import Spec

ROOM = 1.15, 0.01
"""Room of a log: so many times the rows that are expected to move, and so large a share of all rows."""


def size(shares: Sequence[float], rows: int) -> tuple[int, ...]:
    """The number of events that each log has room for, if these shares of the rows are expected to move."""
    return tuple(min(rows, math.ceil(rows * (ROOM[0] * share + ROOM[1]))) for share in shares)


def _family(spec: Spec) -> Spec:
    """The same for sequences of any length and number."""
    return dataclasses.replace(spec, steps=0, batch=0, room=())


class Room:
    """The shares of rows that moved and for which logs of one device had no room: later logs are larger."""

    def __init__(self) -> None:
        self.moved: dict[Spec, tuple[float, ...]] = {}

    def given(self, spec: Spec, moving: Sequence[float]) -> Spec:
        """``spec`` with logs for the share of the rows that is expected to move, or has moved, in each layer."""
        shares = [*map(max, moving, self.moved.get(_family(spec), moving))]
        return dataclasses.replace(spec, room=size(shares, spec.steps * spec.batch))

    def lacked(self, spec: Spec, events: Sequence[int]) -> bool:
        """Whether logs had too little room for ``events``; if so, later calls have more."""
        if all(n <= room for n, room in zip(events, spec.room)):
            return False
        shares, family = [n / (spec.steps * spec.batch) for n in events], _family(spec)
        self.moved[family] = tuple(map(max, shares, self.moved.get(family, shares)))
        return True


class Watched:
    """The calls in a capture of a caller who looks after each replay whether their logs had room for all events."""

    def __init__(self) -> None:
        self.calls: list[tuple[Room, Spec, torch.Tensor]] = []  # with their numbers of events

    def enough(self) -> torch.Tensor | None:
        """Whether there was room so far, on the device; otherwise gradients are wrong. None: there always is."""
        pairs = [(n, room) for _, spec, events in self.calls for n, room in zip(events, spec.room)]
        return torch.stack([n <= room for n, room in pairs]).all() if pairs else None

    def lacked(self) -> bool:
        """Whether there was too little room in the last replay; if so, later calls have more. Waits for the device."""
        lacking = False
        for room, spec, events in self.calls:
            lacking = room.lacked(spec, events.tolist()) or lacking
        return lacking


WATCHED = contextvars.ContextVar[Watched | None]("watched", default=None)


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Inside, calls that a caller captures have logs with limited room. The caller must look whether it was enough."""
    calls = Watched()
    token = WATCHED.set(calls)
    try:
        yield calls
    finally:
        WATCHED.reset(token)


def enough_room() -> torch.Tensor | None:
    """See :meth:`Watched.enough`; None outside :func:`watched`, too."""
    calls = WATCHED.get()
    return None if calls is None else calls.enough()
