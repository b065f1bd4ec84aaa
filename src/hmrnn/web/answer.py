"""The answer to a request that takes work: the body, a place in the queue, then the parts as they are made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from hmrnn.errors import InputError
from hmrnn.reading.page import Request as Wanted
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.work import Busy, Job, NotRead, Slices, TimeUp, Worker

W = TypeVar("W", bound=Wanted)
JSON = "application/json"


class Endpoint(NamedTuple):
    """What answers a request of a type, and the media type of its answer: NDJSON is a line of JSON per part."""

    handler: Callable[..., Slices]
    request: type[Wanted]
    media: str


class Answer:
    """An ASGI response. A client that leaves ends the work.

    An error before the first part has a status of its own; after it, it is the last line.
    """

    def __init__(self, request: Request, endpoint: Endpoint, worker: Worker, arrivals: Arrivals) -> None:
        self.request, self.endpoint, self.worker, self.arrivals = request, endpoint, worker, arrivals
        self.limits = worker.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            wanted = decode(await self.arrivals.body(self.request), self.endpoint.request, self.limits)
            async with Job(self.worker) as job:
                work = asyncio.ensure_future(self._stream(job, wanted, send))
                gone = asyncio.ensure_future(_gone(receive))
                try:
                    await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    gone.cancel()
                    work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
        except Busy:
            busy = Refusal("busy", "too many requests at once; try again in a second", retry_after="1")
            await busy.response()(scope, receive, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        except ClientDisconnect:
            return

    async def _stream(self, job: Job, wanted: Any, send: Send) -> None:
        started = False

        async def put(item: bytes) -> None:
            nonlocal started
            if not started:
                headers = [(b"content-type", self.endpoint.media.encode()), (b"cache-control", b"no-store")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            await send({"type": "http.response.body", "body": item, "more_body": True})

        try:
            async for item in job.run(self.endpoint.handler(wanted)):
                await put(item)
        except (InputError, NotRead, TimeUp, Refusal) as error:
            refusal = self._refusal(error)
            if not started:
                raise refusal from error
            await put(msgspec.json.encode(refusal.body) + b"\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refusal(self, error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, TimeUp):
            return Refusal("time", f"this took longer than {self.limits.seconds:g} seconds; ask for less")
        if isinstance(error, NotRead):
            return Refusal("slow", "the answer must be read as it comes, while others wait for a place")
        return Refusal("bad request", str(error))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Arrivals:
    """The bodies that are arriving. They take no place in the queue, so slow clients keep nobody from it.

    When there are too many, the one that began first is refused: whoever sends at once is never that one.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._timers: dict[asyncio.Timeout, None] = {}

    def __len__(self) -> int:
        return len(self._timers)

    async def body(self, request: Request) -> bytes:
        """The whole body, if it is JSON, short enough and comes in time."""
        limits = self.limits
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refusal("type", "the body must be JSON, sent as application/json", connection="close")
        too_large = Refusal("too large", f"a request may have {limits.body:,} bytes", connection="close")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 20 or int(length) > limits.body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(limits.patience) as timer:
                self._make_room()
                self._timers[timer] = None
                try:
                    async for piece in request.stream():
                        body += piece
                        if len(body) > limits.body:
                            raise too_large
                finally:
                    self._timers.pop(timer, None)
        except TimeoutError as error:
            late = f"the body must arrive within {limits.patience:g} seconds, or sooner while many others do"
            raise Refusal("slow", late, connection="close") from error
        return bytes(body)

    def _make_room(self) -> None:
        while len(self._timers) >= self.limits.arriving:
            oldest = next(iter(self._timers))
            del self._timers[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())


def decode(body: bytes, kind: type[W], limits: Limits) -> W:
    """The request in a body; a refusal if it asks for more than the limits allow."""
    try:
        wanted = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad request", f"the body is not what was expected: {error}") from error
    for field, limit in kind.bounds.items():
        value, most = getattr(wanted, field), getattr(limits, limit)
        size = value if isinstance(value, int) else len(value)
        if size > most:
            raise Refusal("too large", f"{field} may be {most:,} at most; got {size:,}")
    return wanted
