"""One thread, many jobs: fair turns, bounded waiting, and an end for those who leave."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

import pytest

from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.work import Slices, Worker


def numbers(count: int, log: list[str] | None = None, name: str = "") -> Slices:
    try:
        for number in range(count):
            if log is not None:
                log.append(name)
            yield str(number).encode()
    finally:
        if log is not None:
            log.append(f"{name} closed")


async def items(worker: Worker, work: Slices) -> list[bytes]:
    found: list[bytes] = []

    async def put(item: bytes) -> None:
        found.append(item)

    await worker.run(work, put)
    return found


def with_worker(limits: Limits, main: Callable[[Worker], Awaitable[None]]) -> None:
    worker = Worker(limits)
    asyncio.run(main(worker))  # type: ignore[arg-type]
    assert worker.jobs == 0


async def never(_: bytes) -> None:
    """A client that does not take what is sent."""
    await asyncio.sleep(60)


async def seen(log: list[str], entry: str) -> None:
    async with asyncio.timeout(20):
        while entry not in log:
            await asyncio.sleep(0.01)


def test_items_come_in_order_and_jobs_take_turns() -> None:
    log: list[str] = []

    async def main(worker: Worker) -> None:
        first, second = await asyncio.gather(*(items(worker, numbers(50, log, name)) for name in "ab"))
        assert first == second == [str(number).encode() for number in range(50)]

    with_worker(Limits(), main)
    assert [name for name in log if len(name) == 1] == ["a", "b"] * 50


def test_an_error_reaches_the_one_who_waits() -> None:
    def broken() -> Slices:
        yield b"0"
        raise KeyError("x")

    async def main(worker: Worker) -> None:
        with pytest.raises(KeyError):
            await items(worker, broken())
        assert await items(worker, numbers(2)) == [b"0", b"1"]  # the thread lives on

    with_worker(Limits(), main)


def test_more_jobs_than_allowed_are_refused_and_a_place_is_given_back() -> None:
    async def main(worker: Worker) -> None:
        held = [asyncio.create_task(worker.run(numbers(1), never)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await items(worker, numbers(1))
        assert refused.value.status == 503
        assert worker.jobs == 2
        held[0].cancel()
        await asyncio.wait(held[:1])
        assert await items(worker, numbers(1)) == [b"0"]
        held[1].cancel()

    with_worker(Limits(jobs=2), main)


def test_a_job_rests_until_its_future_is_done() -> None:
    future: Future[bytes] = Future()

    def waits() -> Slices:
        yield b""  # is not sent
        yield future
        yield future.result()

    async def main(worker: Worker) -> None:
        job = asyncio.create_task(items(worker, waits()))
        for _ in range(3):
            assert await items(worker, numbers(2)) == [b"0", b"1"]  # others have their turns meanwhile
        assert not job.done()
        future.set_result(b"done")
        assert await job == [b"done"]

    with_worker(Limits(), main)


def test_a_client_that_leaves_is_not_told_how_its_future_ends() -> None:
    future: Future[bytes] = Future()
    told: list[object] = []
    future.set_running_or_notify_cancel()

    def waits() -> Slices:
        yield future

    async def main(worker: Worker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        job = asyncio.create_task(items(worker, waits()))
        await asyncio.sleep(0.1)
        job.cancel()
        await asyncio.wait([job])
        future.set_exception(RuntimeError("stopped"))
        await asyncio.sleep(0.1)
        gc.collect()

    with_worker(Limits(), main)
    assert told == []


def test_a_job_has_its_time_whether_it_works_or_rests() -> None:
    log: list[str] = []

    def slow() -> Slices:
        while True:
            time.sleep(0.05)
            yield b""

    async def main(worker: Worker) -> None:
        for job in (items(worker, slow()), worker.run(numbers(1000, log, "a"), never)):
            with pytest.raises(Refusal) as refused:
                await job
            assert refused.value.status == 504
        await seen(log, "a closed")

    with_worker(Limits(seconds=0.2), main)
