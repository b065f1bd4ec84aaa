"""One thread does all work with models, a slice of each job in turn; jobs, and the time each takes, are bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal

Slices = Generator[bytes | Future[Any], None, None]
"""The work of a job: every item is the end of a slice. Bytes are sent to the client, unless empty; after a Future the
job has its next turn when that is done."""


class Worker:
    """The thread, and the number of jobs. Slices are done in the order in which they are asked for, and a job asks for
    its next one when the last was sent: a long job does not hold up others, and nothing is made that nobody takes.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.jobs = limits, 0
        self._thread = ThreadPoolExecutor(1, "hmrnn-models")

    async def run(self, work: Slices, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Do the work and ``put`` its items; Refusal if there is no place, or if it cannot be finished in time."""
        if self.jobs >= self.limits.jobs:
            raise Refusal(503, "busy", "too many requests at once; try again in a second", retry_after="1")
        self.jobs += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.seconds):
                while (item := await loop.run_in_executor(self._thread, next, work, None)) is not None:
                    if isinstance(item, Future):
                        with contextlib.suppress(Exception):  # the job asks for its result
                            await asyncio.wrap_future(item)
                    elif item:
                        await put(item)
        except TimeoutError as error:
            raise Refusal(
                504, "time", f"this took longer than {self.limits.seconds:g} seconds; ask for less"
            ) from error
        finally:
            self.jobs -= 1
            self._thread.submit(work.close)  # after the slice that may still be worked on
