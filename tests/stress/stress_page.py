"""The page under load, and beside clients that send slowly."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from pages import CHARACTERS, explored, save
from recorded import Record

import tiny
from hmrnn.kinds.strokes.strokes import Scale

CLIENTS = 200
SECONDS = 60 * float(os.environ.get("HMRNN_LOAD_MINUTES", "1"))


@contextmanager
def small_page(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The page over two small models, in a process of its own."""
    save(folder / "text", CHARACTERS, 1)
    save(folder / "pen", Scale((0.5, 0.0), (2.0, 3.0)), 2, "strokes")
    with explored([folder / "text", folder / "pen"], tiny.environment(folder)) as started:
        yield started


def rss(pid: int) -> float:
    """Resident memory in MB."""
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024


class Load:
    """Clients that ask one after the other until the time is up, and what they got."""

    REQUESTS = (
        ("/api/text/read", {"text": "the quick brown fox jumps over the lazy dog\n" * 3}),
        ("/api/text/write", {"prompt": "the ", "length": 60, "seed": 1}),
        ("/api/strokes/write", {"points": 30, "model": 1, "seed": 1}),
        ("/api/models", None),
        ("/", None),
    )

    def __init__(self, address: str, pid: int) -> None:
        self.address, self.pid, self.until = address, pid, 0.0
        self.times: dict[str, list[float]] = {}
        self.count = {"answered": 0, "busy": 0}
        self.wrong: list[str] = []
        self.memory: list[float] = []

    async def run(self) -> None:
        """All clients at once, and a look at the memory of the server now and then."""
        many = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
        async with httpx.AsyncClient(base_url=self.address, timeout=120, verify=False, limits=many) as client:
            self.until = time.monotonic() + SECONDS
            await asyncio.gather(self.watch(), *(self.client(client, number) for number in range(CLIENTS)))

    async def watch(self) -> None:
        while time.monotonic() < self.until:
            await asyncio.sleep(SECONDS / 40)
            self.memory.append(rss(self.pid))

    async def client(self, client: httpx.AsyncClient, turn: int) -> None:
        while time.monotonic() < self.until and not self.wrong:
            path, body = self.REQUESTS[turn % len(self.REQUESTS)]
            began, wait = time.monotonic(), 0.0
            try:
                answer = await (client.get(path) if body is None else client.post(path, json=body))
                problem = self.judge(answer)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                self.wrong.append(f"{path}: {problem}")
            elif answer.status_code == 503:
                self.count["busy"] += 1
                wait = float(answer.headers["retry-after"])
            else:
                self.count["answered"] += 1
                self.times.setdefault(path, []).append(time.monotonic() - began)
                turn += 1
            await asyncio.sleep(wait)

    @staticmethod
    def judge(answer: httpx.Response) -> str:
        """What is wrong with an answer; nothing, if it is whole or says that the page is busy."""
        if answer.status_code == 503:
            return "" if answer.json()["error"] == "busy" and "retry-after" in answer.headers else answer.text
        if answer.status_code != 200:
            return f"status {answer.status_code}: {answer.text[:200]}"
        if answer.headers["content-type"].startswith("application/x-ndjson"):
            last = json.loads(answer.text.splitlines()[-1])
            return "" if last.get("end") is True else f"it ended with {last}"
        return ""


def test_load(record: Record, tmp_path: Path) -> None:
    """200 clients at once on loopback: no error but "busy", memory flat, and SIGTERM ends it once what runs is done."""
    with small_page(tmp_path) as (process, address):
        httpx.post(f"{address}/api/text/read", json={"text": "warm up"}).raise_for_status()
        load = Load(address, process.pid)
        asyncio.run(load.run())
        memory = load.memory
        assert load.wrong == []
        record["clients"], record["seconds of load"] = CLIENTS, SECONDS
        record["answered"], record["told to come back"] = load.count["answered"], load.count["busy"]
        for path, times in sorted(load.times.items()):
            times.sort()
            p50, p99 = (times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99))
            record[f"{path}: answers, p50, p99 in seconds"] = [len(times), round(p50, 3), round(p99, 3)]
        record["memory after a quarter, MB"] = round(memory[len(memory) // 4], 1)
        record["memory at the end, MB"] = round(memory[-1], 1)
        assert memory[-1] < memory[len(memory) // 4] + 30
        assert load.count["answered"] > CLIENTS

        with httpx.stream(
            "POST", f"{address}/api/text/write", json={"length": 2000, "seed": 1}, timeout=60
        ) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            *_, last = lines
        assert json.loads(last)["end"] is True
        _, errors = process.communicate(timeout=60)
        record["exit status after SIGTERM"] = process.returncode
        assert (process.returncode, errors) == (128 + signal.SIGTERM, "")
