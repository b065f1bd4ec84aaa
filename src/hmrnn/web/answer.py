"""The answer to a request that takes work: the body, a place in the queue, then the parts as they are made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from hmrnn.errors import InputError
from hmrnn.reading.page import Request as Wanted
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.work import Slices, Worker

W = TypeVar("W", bound=Wanted)
JSON = "application/json"


class Answer:
    """Answers the requests of a type, as ASGI: the work that a handler makes of one, in ``media`` such as NDJSON.

    An error before the first part has a status of its own; after it, it is the last line. A client that leaves ends the
    work.
    """

    def __init__(self, handler: Callable[[Any], Slices], kind: type[Wanted], media: str, worker: Worker) -> None:
        self.handler, self.kind, self.media, self.worker = handler, kind, media, worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await arrived(Request(scope, receive), self.worker.limits)
            wanted = decode(body, self.kind, self.worker.limits)
            work, gone = asyncio.ensure_future(self._stream(wanted, send)), asyncio.ensure_future(_gone(receive))
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        except ClientDisconnect:
            return

    async def _stream(self, wanted: Wanted, send: Send) -> None:
        started = False

        async def put(item: bytes) -> None:
            nonlocal started
            if not started:
                headers = [(b"content-type", self.media.encode()), (b"cache-control", b"no-store")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            await send({"type": "http.response.body", "body": item, "more_body": True})

        try:
            await self.worker.run(self.handler(wanted), put)
        except (InputError, Refusal) as error:
            refusal = error if isinstance(error, Refusal) else Refusal(400, "bad request", str(error))
            if not started:
                raise refusal from error
            await put(msgspec.json.encode(refusal.body) + b"\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def arrived(request: Request, limits: Limits) -> bytes:
    """The whole body, if it is JSON, short enough and comes in time. It takes no place in the queue."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refusal(415, "type", "the body must be JSON, sent as application/json", connection="close")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.patience):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body:
                    raise Refusal(413, "too large", f"a request may have {limits.body:,} bytes", connection="close")
    except TimeoutError as error:
        late = f"the body must arrive within {limits.patience:g} seconds"
        raise Refusal(408, "slow", late, connection="close") from error
    return bytes(body)


def decode(body: bytes, kind: type[W], limits: Limits) -> W:
    """The request in a body; a refusal if it asks for more than the limits allow."""
    try:
        wanted = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "bad request", f"the body is not what was expected: {error}") from error
    for field, limit in kind.bounds.items():
        value, most = getattr(wanted, field), getattr(limits, limit)
        size = value if isinstance(value, int) else len(value)
        if size > most:
            raise Refusal(413, "too large", f"{field} may be {most:,} at most; got {size:,}")
    return wanted
