"""One thread does all work with models, a slice of each job in turn; jobs, parts that wait, and time are bounded."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import Any

from hmrnn.web.limits import Limits

Slices = Iterator[bytes | Future[Any]]
"""The work of a job: every item is the end of a slice. Bytes are sent to the client, unless empty; after a Future the
job has its next turn when that is done."""


class Busy(Exception):
    """There are as many jobs as allowed."""


class TimeUp(Exception):
    """A job took longer than allowed."""


class NotRead(Exception):
    """A client did not take the items of its job while another waited for the place."""


STUCK = 1.0
"""Seconds after which the place of a job whose client takes no items may be given to another."""


class Job:
    """Work for one request, as an async context manager.

    ``async with`` takes a place in the queue; ``run`` hands the work over and gives its items as they come. Leaving
    the context ends the work, finished or not.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.deadline = time.monotonic() + worker.limits.seconds
        self.work: Slices | None = None
        self.waiting: Future[Any] | None = None
        self.ready: collections.deque[bytes] = collections.deque()
        self.full: float | None = None  # since when as many items as allowed wait for the client
        self.error: BaseException | None = None
        self.done = False
        self.left = False

    async def __aenter__(self) -> Job:
        self._worker.take_place(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.give_up_place(self)

    async def run(self, work: Slices) -> AsyncIterator[bytes]:
        """The items of ``work``; if it raises an exception, that is raised after them."""
        self._worker.hand_over(self, work)
        while True:
            item, over = self._worker.collect(self)
            if item is not None:
                yield item
            elif over:
                if self.error is not None:
                    raise self.error
                return
            else:
                await self._news.wait()
                self._news.clear()

    @property
    def over(self) -> bool:
        """Whether the client has left or the time is up."""
        return self.left or time.monotonic() > self.deadline

    def tell(self) -> None:
        """Wake the coroutine that waits for items; called from the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)


class Worker:
    """The thread and its queue. Jobs take turns, so that a long one does not hold up others."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._places: set[Job] = set()
        self._turns: collections.deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="hmrnn-models", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current slice; jobs that are left get no further."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def jobs(self) -> int:
        """Number of jobs that wait or are worked on."""
        return len(self._places)

    def take_place(self, job: Job) -> None:
        with self._changed:
            if len(self._places) >= self.limits.jobs:
                before = time.monotonic() - STUCK
                stuck = [one for one in self._places if one.full is not None and one.full < before]
                if not stuck:
                    raise Busy
                self._end(min(stuck, key=lambda one: one.full or 0.0))
            self._places.add(job)

    def give_up_place(self, job: Job) -> None:
        with self._changed:
            self._end(job)

    def _end(self, job: Job) -> None:
        self._places.discard(job)
        job.left = True
        job.ready.clear()
        self._changed.notify()

    def hand_over(self, job: Job, work: Slices) -> None:
        with self._changed:
            job.work = work
            self._turns.append(job)
            self._changed.notify()

    def collect(self, job: Job) -> tuple[bytes | None, bool]:
        """The next item, if there is one, and whether the job is over."""
        with self._changed:
            if not job.ready:
                return None, job.done
            self._changed.notify()
            job.full = None
            return job.ready.popleft(), False

    def _loop(self) -> None:
        while (job := self._next_turn()) is not None:
            item, error, done = self._slice(job)
            with self._changed:
                job.waiting = item if isinstance(item, Future) else None
                if isinstance(item, bytes) and item and not job.left:
                    job.ready.append(item)
                    if len(job.ready) >= self.limits.ahead:
                        job.full = time.monotonic()
                job.error, job.done = error, done
                if not done:
                    self._turns.append(job)
            if job.waiting is not None:
                job.waiting.add_done_callback(self._wake)
            job.tell()

    def _wake(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify()

    def _next_turn(self) -> Job | None:
        """The job whose turn it is; None when the worker stops.

        A job rests while as many of its items as allowed wait for the client, and until its Future is done.
        """
        with self._changed:
            while not self._stopping:
                for _ in range(len(self._turns)):
                    job = self._turns.popleft()
                    rests = len(job.ready) >= self.limits.ahead or not (job.waiting is None or job.waiting.done())
                    if job.over or not rests:
                        return job
                    self._turns.append(job)
                self._changed.wait(timeout=1.0 if self._turns else None)
            return None

    def _slice(self, job: Job) -> tuple[bytes | Future[Any] | None, BaseException | None, bool]:
        """Work on a job until its next item: the item, the exception it raised, and whether it is over."""
        assert job.work is not None
        if job.over:
            close = getattr(job.work, "close", None)
            if close is not None:
                close()
            return None, NotRead() if job.left else TimeUp(), True
        try:
            return next(job.work), None, False
        except StopIteration:
            return None, None, True
        except Exception as error:  # raised again by Job.run, where the request is answered
            return None, error, True
