"""One thread does all work with models, a slice of each job in turn; jobs, and the time each takes, are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal

Slices = Generator[bytes | Future[Any], None, None]
"""The work of a job: every item is the end of a slice. Bytes are sent to the client, unless empty; after a Future the
job has its next turn when that is done."""
STUCK = 1.0
"""Seconds after which the place of a job whose client does not take what is sent may be given to another."""


class Worker:
    """The thread, and the places of the jobs. Slices are done in the order in which they are asked for, and a job asks
    for its next one when the last was sent: a long job does not hold up others, and nothing is made that nobody takes.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._thread = ThreadPoolExecutor(1, "hmrnn-models")
        self._places: dict[asyncio.Timeout, float] = {}
        """The ends of jobs, and since when each waits for its client to take what is sent."""

    @property
    def jobs(self) -> int:
        """Number of jobs that wait or are worked on."""
        return len(self._places)

    async def run(self, work: Slices, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Do the work and ``put`` its items; Refusal if there is no place, or if it cannot be finished in time."""
        self._make_room()
        loop, end = asyncio.get_running_loop(), asyncio.timeout(self.limits.seconds)
        self._places[end] = math.inf
        try:
            async with end:
                while (item := await loop.run_in_executor(self._thread, next, work, None)) is not None:
                    if isinstance(item, Future):
                        with contextlib.suppress(Exception):  # the job asks for its result
                            await asyncio.wrap_future(item)
                    elif item:
                        self._places[end] = loop.time()
                        await put(item)
                        if end in self._places:  # not if it was given to another just now
                            self._places[end] = math.inf
        except TimeoutError as error:
            if end in self._places:
                seconds = f"{self.limits.seconds:g}"
                raise Refusal("time", f"this took longer than {seconds} seconds; ask for less") from error
            raise Refusal("slow", "the answer must be read as it comes, while others wait for a place") from error
        finally:
            self._places.pop(end, None)
            self._thread.submit(work.close)  # after the slice that may still be worked on

    def _make_room(self) -> None:
        """End the job that has waited longest for its client, if there are as many as allowed."""
        if len(self._places) >= self.limits.jobs:
            now = asyncio.get_running_loop().time()
            end = min(self._places, key=self._places.__getitem__, default=None)
            if end is None or self._places[end] > now - STUCK:
                raise Refusal("busy", "too many requests at once; try again in a second", retry_after="1")
            del self._places[end]
            if not end.expired():  # its time may be up at this moment
                end.reschedule(now)
