"""The application: a page of static files, and an interface whose long answers come part by part."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hmrnn import __version__
from hmrnn.data.text.plain import in_symbols
from hmrnn.errors import InputError
from hmrnn.web import openapi, parts
from hmrnn.web.guard import LOOPBACK, Guard
from hmrnn.web.limits import Limits
from hmrnn.web.shelf import Shelf
from hmrnn.web.work import Busy, Job, TimeUp, Worker

STATIC = Path(__file__).parent / "static"
MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
NDJSON = "application/x-ndjson"

Index = Annotated[int, Meta(ge=0, le=1000)]
S = TypeVar("S")


class ReadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Text to read with one of the models."""

    text: Annotated[str, Meta(min_length=1)]
    model: Index = 0


class WriteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Text to go on from, and how."""

    prompt: str = ""
    model: Index = 0
    length: Annotated[int, Meta(ge=1)] = 300
    temperature: Annotated[float, Meta(ge=0, le=10)] = 0.8
    top_k: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None


Length = Annotated[float, Meta(ge=-1e6, le=1e6)]


class DrawingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A drawing as steps: Δx, Δy (y downwards), and 1 where the pen is lifted after the point."""

    steps: Annotated[list[tuple[Length, Length, Literal[0, 1]]], Meta(min_length=2)]
    model: Index = 0


class HandwritingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A line of handwriting to make up."""

    model: Index = 0
    points: Annotated[int, Meta(ge=1)] = 400
    bias: Annotated[float, Meta(ge=0, le=10)] = 0.5
    seed: int | None = None


class Refusal(Exception):
    """An answer that is no result: status, a word for programs, a line for people."""

    def __init__(self, status: int, error: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.error, self.message = status, error, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> Response:
        return _json({"error": self.error, "message": self.message}, self.status, self.headers)


def application(shelf: Shelf, limits: Limits | None = None, names: Iterable[str] = LOOPBACK) -> ASGIApp:
    """The page over the models of ``shelf``, for those who call it by one of ``names``."""
    page = _Page(shelf, limits or Limits())
    routes = [
        *(Route(path, page.static, methods=["GET"]) for path in page.files),
        Route("/api/models", page.models, methods=["GET"]),
        Route("/api/read", page.read, methods=["POST"]),
        Route("/api/plain", page.plain, methods=["POST"]),
        Route("/api/segmentation", page.segmentation, methods=["POST"]),
        Route("/api/figure", page.figure, methods=["POST"]),
        Route("/api/write", page.write, methods=["POST"]),
        Route("/api/strokes/read", page.read_strokes, methods=["POST"]),
        Route("/api/strokes/segmentation", page.strokes_segmentation, methods=["POST"]),
        Route("/api/strokes/write", page.write_strokes, methods=["POST"]),
        Route("/openapi.json", page.openapi, methods=["GET"]),
    ]
    handlers: Any = {HTTPException: _http_error, Refusal: _refused, Exception: _defect}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=page.lifespan)
    app.router.redirect_slashes = False
    app.state.worker = page.worker
    return Guard(app, names)


class _Page:
    """The answers."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self.worker = Worker(limits)
        self.memories = [parts.Memory() for _ in shelf.entries]
        self.files = {
            "/" if path.name == "index.html" else f"/static/{path.name}": _File.of(path)
            for path in sorted(STATIC.iterdir())
            if path.suffix in MEDIA
        }

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)

    async def static(self, request: Request) -> Response:
        file = self.files[request.url.path]
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media, headers=headers)

    async def models(self, _: Request) -> Response:
        models = [{"model": index, **entry.to_dict()} for index, entry in enumerate(self.shelf.entries)]
        return _json({"version": __version__, "models": models, "limits": dataclasses.asdict(self.limits)})

    async def openapi(self, _: Request) -> Response:
        return _json(openapi.description(self.limits))

    async def read(self, request: Request) -> ASGIApp:
        def work(wanted: ReadRequest) -> Iterator[bytes]:
            _at_most("text", len(wanted.text), self.limits.text)
            model = self.shelf.of_kind(wanted.model, "text")
            return parts.read(model, wanted.text, self.memories[wanted.model])

        return Answer(self, request, ReadRequest, work, NDJSON)

    async def write(self, request: Request) -> ASGIApp:
        def work(wanted: WriteRequest) -> Iterator[bytes]:
            _at_most("prompt", len(wanted.prompt), self.limits.prompt)
            _at_most("length", wanted.length, self.limits.length)
            _seed(wanted.seed)
            how = {name: getattr(wanted, name) for name in ("temperature", "top_k", "top_p", "seed")}
            return parts.write(self.shelf.of_kind(wanted.model, "text"), wanted.prompt, wanted.length, **how)

        return Answer(self, request, WriteRequest, work, NDJSON)

    async def plain(self, request: Request) -> ASGIApp:
        def work(wanted: ReadRequest) -> Iterator[bytes]:
            _at_most("text", len(wanted.text), self.limits.text)
            vocabulary = self.shelf.of_kind(wanted.model, "text").vocabulary
            every = vocabulary.kind == "bytes"  # any text is made of them
            yield msgspec.json.encode({"text": wanted.text if every else in_symbols(wanted.text, vocabulary.symbols)})

        return Answer(self, request, ReadRequest, work, "application/json")

    async def segmentation(self, request: Request) -> ASGIApp:
        def work(wanted: ReadRequest) -> Iterator[bytes]:
            _at_most("text", len(wanted.text), self.limits.text)
            model = self.shelf.of_kind(wanted.model, "text")
            yield model.segment(wanted.text).to_json().encode()

        return Answer(self, request, ReadRequest, work, "application/json")

    async def figure(self, request: Request) -> ASGIApp:
        def work(wanted: ReadRequest) -> Iterator[bytes]:
            from hmrnn.plots.save import save_figure
            from hmrnn.plots.text import figure4

            _at_most("text", len(wanted.text), self.limits.figure)
            drawn = figure4(self.shelf.of_kind(wanted.model, "text").segment(wanted.text))
            with tempfile.TemporaryDirectory() as folder:
                yield save_figure(drawn, Path(folder) / "figure.svg").read_bytes()

        return Answer(self, request, ReadRequest, work, MEDIA[".svg"])

    async def read_strokes(self, request: Request) -> ASGIApp:
        def work(wanted: DrawingRequest) -> Iterator[bytes]:
            _at_most("steps", len(wanted.steps), self.limits.points)
            return parts.read_strokes(self.shelf.of_kind(wanted.model, "handwriting"), wanted.steps)

        return Answer(self, request, DrawingRequest, work, NDJSON)

    async def strokes_segmentation(self, request: Request) -> ASGIApp:
        def work(wanted: DrawingRequest) -> Iterator[bytes]:
            _at_most("steps", len(wanted.steps), self.limits.points)
            model = self.shelf.of_kind(wanted.model, "handwriting")
            yield model.segment(parts.fit(np.asarray(wanted.steps), model.scale)).to_json().encode()

        return Answer(self, request, DrawingRequest, work, "application/json")

    async def write_strokes(self, request: Request) -> ASGIApp:
        def work(wanted: HandwritingRequest) -> Iterator[bytes]:
            _at_most("points", wanted.points, self.limits.points)
            _seed(wanted.seed)
            model = self.shelf.of_kind(wanted.model, "handwriting")
            return parts.write_strokes(model, wanted.points, bias=wanted.bias, seed=wanted.seed)

        return Answer(self, request, HandwritingRequest, work, NDJSON)


class Answer:
    """The response to a request that takes work: a place in the queue, the body, then the parts as they are made.

    A client that leaves ends the work. What goes wrong before the first part has a status of its own; after it, a last
    line says so.
    """

    def __init__(
        self, page: _Page, request: Request, kind: type[S], work: Callable[[S], Iterator[bytes]], media: str
    ) -> None:
        self.page, self.request, self.kind, self.work, self.media = page, request, kind, work, media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with Job(self.page.worker) as job:
                wanted = _decode(await _body(self.request, self.page.limits), self.kind)
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
            busy = Refusal(503, "busy", "too many requests at once; try again in a second", retry_after="1")
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
                headers = [(b"content-type", self.media.encode()), (b"cache-control", b"no-store")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            await send({"type": "http.response.body", "body": item, "more_body": True})

        try:
            async for item in job.run(self.work(wanted)):
                await put(item)
        except (InputError, TimeUp, Refusal) as error:
            refusal = _as_refusal(error, self.page.limits)
            if not started:
                raise refusal from error
            await put(parts.line({"error": refusal.error, "message": refusal.message}))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limits: Limits) -> bytes:
    """The whole body, if it is JSON, short enough and comes in time."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "type", "the body must be JSON, sent as application/json", connection="close")
    too_large = Refusal(413, "too large", f"a request may have {limits.body:,} bytes", connection="close")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 20 or int(length) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.patience):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError as error:
        late = f"the body must arrive within {limits.patience:g} seconds"
        raise Refusal(408, "slow", late, connection="close") from error
    return bytes(body)


def _decode(body: bytes, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "bad request", f"the body is not what was expected: {error}") from error


def _at_most(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise Refusal(413, "too long", f"{name} may be {limit:,} at most; got {value:,}")


def _seed(seed: int | None) -> None:
    if seed is not None and not 0 <= seed < 2**63:
        raise Refusal(400, "bad request", f"seed must be a whole number from 0 to {2**63 - 1:,}; choose another")


def _as_refusal(error: Exception, limits: Limits) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TimeUp):
        return Refusal(504, "time", f"this took longer than {limits.seconds:g} seconds; ask for less")
    return Refusal(400, "bad request", str(error))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return Refusal(error.status_code, error.detail.lower(), f"{error.detail}: see /openapi.json", **headers).response()


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _defect(_: Request, error: Exception) -> Response:
    return Refusal(500, "defect", "a defect of hmrnn; the terminal it runs in shows more").response()


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(content)
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


@dataclasses.dataclass(frozen=True)
class _File:
    """A static file, read at start."""

    content: bytes
    media: str
    tag: str

    @staticmethod
    def of(path: Path) -> _File:
        content = path.read_bytes()
        return _File(content, MEDIA[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
