"""One thread, many jobs: fair turns, bounded waiting, and an end for those who leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from hmrnn.web.limits import Limits
from hmrnn.web.work import Busy, Job, Slices, TimeUp, Worker


def numbers(count: int, log: list[str] | None = None, name: str = "") -> Iterator[bytes]:
    try:
        for number in range(count):
            if log is not None:
                log.append(name)
            yield str(number).encode()
    finally:
        if log is not None:
            log.append(f"{name} closed")


async def run(worker: Worker, work: Iterator[bytes]) -> list[bytes]:
    async with Job(worker) as job:
        return [item async for item in job.run(work)]


def with_worker(limits: Limits, main: object) -> None:
    worker = Worker(limits)
    worker.start()
    try:
        asyncio.run(main(worker))  # type: ignore[operator]
    finally:
        worker.stop()
    assert worker.jobs == 0


def test_items_come_in_order_and_jobs_take_turns() -> None:
    log: list[str] = []

    worker = Worker(Limits(ahead=100))  # no job has to wait until its items are taken

    async def main() -> None:
        jobs = [asyncio.create_task(run(worker, numbers(50, log, name))) for name in "ab"]
        await asyncio.sleep(0)  # both stand in line before the thread starts
        worker.start()
        first, second = await asyncio.gather(*jobs)
        assert first == second == [str(number).encode() for number in range(50)]

    try:
        asyncio.run(main())
    finally:
        worker.stop()
    assert [name for name in log if len(name) == 1] == ["a", "b"] * 50


def test_an_error_reaches_the_one_who_waits() -> None:
    def broken() -> Iterator[bytes]:
        yield b"0"
        raise KeyError("x")

    async def main(worker: Worker) -> None:
        async with Job(worker) as job:
            items = job.run(broken())
            assert await anext(items) == b"0"
            with pytest.raises(KeyError):
                await anext(items)
        assert await run(worker, numbers(2)) == [b"0", b"1"]  # the thread lives on

    with_worker(Limits(), main)


def test_more_jobs_than_allowed_are_refused_and_a_place_is_given_back() -> None:
    async def main(worker: Worker) -> None:
        async with Job(worker), Job(worker):
            with pytest.raises(Busy):
                async with Job(worker):
                    pass
        async with Job(worker):
            assert worker.jobs == 1

    with_worker(Limits(jobs=2), main)


def test_work_rests_while_nobody_takes_its_items_and_ends_when_the_client_leaves() -> None:
    log: list[str] = []

    async def main(worker: Worker) -> None:
        async with Job(worker) as job:
            async for _ in job.run(numbers(1000, log, "a")):
                await asyncio.sleep(0.1)  # others have their turns meanwhile
                await run(worker, numbers(20))
                assert log.count("a") <= 4
                break
        await run(worker, numbers(5))
        assert log[-1] == "a closed"

    with_worker(Limits(ahead=2), main)


def test_a_job_rests_until_its_future_is_done() -> None:
    future: Future[bytes] = Future()

    def waits() -> Slices:
        yield b""  # is not sent
        yield future
        yield future.result()

    async def main(worker: Worker) -> None:
        job = asyncio.create_task(run(worker, waits()))
        for _ in range(3):
            assert await run(worker, numbers(2)) == [b"0", b"1"]  # others have their turns meanwhile
        assert not job.done()
        future.set_result(b"done")
        assert await job == [b"done"]

    with_worker(Limits(), main)


def test_a_job_has_its_time_whether_it_works_or_rests() -> None:
    def slow() -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b""

    async def main(worker: Worker) -> None:
        with pytest.raises(TimeUp):
            await run(worker, slow())
        log: list[str] = []
        async with Job(worker) as job:
            items = job.run(numbers(1000, log, "a"))
            await anext(items)
            async with asyncio.timeout(20):
                while log[-1] != "a closed":
                    await asyncio.sleep(0.05)

    with_worker(Limits(seconds=0.2, ahead=2), main)
