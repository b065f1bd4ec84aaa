"""The application: the static files of the page, and the interface that it uses."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hmrnn import __version__
from hmrnn.kinds.strokes import page as strokes
from hmrnn.kinds.text.reading import Reading
from hmrnn.web import parts
from hmrnn.web.answer import JSON, Answer, Arrivals, Endpoint
from hmrnn.web.bodies import DrawingRequest, FigureRequest, HandwritingRequest, Models, ReadRequest, WriteRequest
from hmrnn.web.guard import LOOPBACK, Guard
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.shelf import Shelf
from hmrnn.web.work import Slices, Worker

STATIC = Path(__file__).parent / "static"
NDJSON, SVG = "application/x-ndjson", "image/svg+xml"
MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": SVG}


def application(shelf: Shelf, limits: Limits | None = None, names: Iterable[str] = LOOPBACK) -> ASGIApp:
    """The page over the models of ``shelf``, for clients that call it by one of ``names``."""
    page = _Page(shelf, limits or Limits())
    routes = [Route(path, page.static, methods=["GET"]) for path in page.files]
    routes.append(Route("/api/models", page.models, methods=["GET"]))
    routes += [Route(path, page.answer(endpoint), methods=["POST"]) for path, endpoint in page.endpoints.items()]
    handlers: Any = {HTTPException: _http_error, Exception: _defect}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=page.lifespan)
    app.router.redirect_slashes = False
    app.state.worker, app.state.arrivals = page.worker, page.arrivals
    return Guard(app, names)


class _Page:
    """The handlers. Those of POST get a checked request and give the slices of the answer."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self.worker, self.arrivals = Worker(limits), Arrivals(limits)
        self.drawer = ThreadPoolExecutor(1, "hmrnn-figures")
        self.memories = [parts.Memory() for _ in shelf.entries]
        self.files = {
            "/" if path.name == "index.html" else f"/static/{path.name}": (path.read_bytes(), MEDIA[path.suffix])
            for path in sorted(STATIC.iterdir())
            if path.suffix in MEDIA
        }
        self.endpoints = {
            "/api/read": Endpoint(self.read, ReadRequest, NDJSON),
            "/api/segmentation": Endpoint(self.segmentation, ReadRequest, JSON),
            "/api/figure": Endpoint(self.figure, FigureRequest, SVG),
            "/api/write": Endpoint(self.write, WriteRequest, NDJSON),
            "/api/strokes/read": Endpoint(self.read_strokes, DrawingRequest, NDJSON),
            "/api/strokes/segmentation": Endpoint(self.segment_strokes, DrawingRequest, JSON),
            "/api/strokes/write": Endpoint(self.write_strokes, HandwritingRequest, NDJSON),
        }

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)
            self.drawer.shutdown(cancel_futures=True)

    def answer(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Any]]:
        async def handle(request: Request) -> Answer:
            return Answer(request, endpoint, self.worker, self.arrivals)

        return handle

    async def static(self, request: Request) -> Response:
        content, media = self.files[request.url.path]
        headers = {"etag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media, headers=headers)

    async def models(self, _: Request) -> Response:
        """The models that the page was started with, and the limits"""
        models = [entry.about(index) for index, entry in enumerate(self.shelf.entries)]
        return _json(Models(__version__, models, self.limits))

    def read(self, wanted: ReadRequest) -> Slices:
        """What a model finds in a text, part by part"""
        reading = self._reading(wanted)  # in a generator: the worker's thread does it, not the event loop
        yield from parts.lines(self._read(wanted, reading), reading.notes)

    def segmentation(self, wanted: ReadRequest) -> Slices:
        """What a model finds in a text as one object, as `hmrnn segment --json` writes it"""
        yield from parts.whole(self._read(wanted, self._reading(wanted)))

    def figure(self, wanted: FigureRequest) -> Slices:
        """Figure 4 of the paper for a text"""
        yield from parts.figure(self._read(wanted, self._reading(wanted)), self.drawer)

    def _reading(self, wanted: ReadRequest | FigureRequest) -> Reading:
        reading: Reading = self.shelf.reading("text", wanted.model).reading(wanted.text)
        return reading

    def _read(self, wanted: ReadRequest | FigureRequest, reading: Reading) -> parts.Chunks:
        model, memory = self.shelf.reading("text", wanted.model), self.memories[wanted.model]
        return parts.read(model, reading, memory, wanted.condition)

    def write(self, wanted: WriteRequest) -> Slices:
        """What a model continues a prompt with, part by part; the prompt comes first"""
        how = {name: getattr(wanted, name) for name in ("temperature", "top_k", "top_p", "seed", "condition")}
        return parts.write(self.shelf.reading("text", wanted.model), wanted.prompt, wanted.length, **how)

    def read_strokes(self, wanted: DrawingRequest) -> Slices:
        """What a handwriting model finds in a drawing, part by part; a symbol is a point"""
        return parts.lines(self._read_strokes(wanted))

    def segment_strokes(self, wanted: DrawingRequest) -> Slices:
        """What a handwriting model finds in a drawing as one object"""
        return parts.whole(self._read_strokes(wanted))

    def _read_strokes(self, wanted: DrawingRequest) -> parts.Chunks:
        model = self.shelf.reading("strokes", wanted.model)
        return strokes.read_strokes(model, np.asarray(wanted.steps), wanted.condition)

    def write_strokes(self, wanted: HandwritingRequest) -> Slices:
        """A line that a handwriting model generates, part by part; each part has its steps"""
        model = self.shelf.reading("strokes", wanted.model)
        how = {name: getattr(wanted, name) for name in ("bias", "seed", "condition")}
        return strokes.write_strokes(model, wanted.points, **how)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.detail.lower(), error.detail, error.status_code)
    refusal.headers |= error.headers or {}
    return refusal.response()


async def _defect(_: Request, error: Exception) -> Response:
    return Refusal("defect", "a defect of hmrnn; the terminal it runs in shows more", 500).response()


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), headers={"cache-control": "no-store"}, media_type=JSON)
