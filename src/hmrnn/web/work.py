"""One thread does all work with models, a slice of each job in turn; jobs, waiting parts and time are bounded."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import AsyncIterator, Iterator

from hmrnn.web.limits import Limits


class Busy(Exception):
    """As many jobs as allowed are there already."""


class TimeUp(Exception):
    """A job took longer than allowed."""


class Job:
    """Work for one request: an iterator whose every item is a slice of it. Used as an async context manager.

    A place is held from ``async with`` on; ``run`` hands the work over and gives its items as they come. Leaving the
    context ends the work, finished or not.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.deadline = time.monotonic() + worker.limits.seconds
        self.work: Iterator[bytes] | None = None
        self.ready: collections.deque[bytes] = collections.deque()
        self.error: BaseException | None = None
        self.done = False
        self.left = False

    async def __aenter__(self) -> Job:
        self._worker.take_place(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.give_up_place(self)

    async def run(self, work: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The items of ``work``, and then its exception if it raised one."""
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

    def tell(self) -> None:
        """Wake the one who waits for items; called from the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)


class Worker:
    """The thread. ``start`` and ``stop`` frame its life; jobs take turns, so a long one holds up no other."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.slices = 0  # of work done so far
        self._places: set[Job] = set()
        self._turns: collections.deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="hmrnn-models", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the slice it is at; jobs still there get no further."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def jobs(self) -> int:
        """Jobs that wait or are worked on."""
        return len(self._places)

    def take_place(self, job: Job) -> None:
        with self._changed:
            if len(self._places) >= self.limits.jobs:
                raise Busy
            self._places.add(job)

    def give_up_place(self, job: Job) -> None:
        with self._changed:
            self._places.discard(job)
            job.left = True
            job.ready.clear()
            self._changed.notify()

    def hand_over(self, job: Job, work: Iterator[bytes]) -> None:
        with self._changed:
            job.work = work
            self._turns.append(job)
            self._changed.notify()

    def collect(self, job: Job) -> tuple[bytes | None, bool]:
        """The next item if one waits; and whether the job is over."""
        with self._changed:
            if not job.ready:
                return None, job.done
            self._changed.notify()
            return job.ready.popleft(), False

    def _loop(self) -> None:
        while (job := self._next_turn()) is not None:
            item, error, done = self._slice(job)
            with self._changed:
                self.slices += 1
                if item is not None and not job.left:
                    job.ready.append(item)
                job.error, job.done = error, done
                if not done:
                    self._turns.append(job)
            job.tell()

    def _next_turn(self) -> Job | None:
        """The job whose turn it is, once there is one with room for what it makes; None at the end."""
        with self._changed:
            while not self._stopping:
                for _ in range(len(self._turns)):
                    job = self._turns.popleft()
                    late = time.monotonic() > job.deadline
                    if job.left or late or len(job.ready) < self.limits.ahead:
                        return job
                    self._turns.append(job)
                self._changed.wait(timeout=1.0 if self._turns else None)
            return None

    def _slice(self, job: Job) -> tuple[bytes | None, BaseException | None, bool]:
        """Work on a job until its next item: the item, what it raised, whether it is over."""
        assert job.work is not None
        if job.left or time.monotonic() > job.deadline:
            close = getattr(job.work, "close", None)
            if close is not None:
                close()
            return None, TimeUp(), True
        try:
            return next(job.work), None, False
        except StopIteration:
            return None, None, True
        except Exception as error:  # raised again by Job.run, where the request is answered
            return None, error, True
