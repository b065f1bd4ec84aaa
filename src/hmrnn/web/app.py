"""The application: the static files of the page, and the interface that it uses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hmrnn import __version__
from hmrnn.reading.page import Action
from hmrnn.reading.page import Request as Wanted
from hmrnn.web import parts
from hmrnn.web.answer import JSON, Answer, Arrivals
from hmrnn.web.guard import LOOPBACK, Guard
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.shelf import Shelf
from hmrnn.web.work import Slices, Worker

STATIC = Path(__file__).parent / "static"
MEDIA = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
    "lines": "application/x-ndjson", "whole": JSON, "figure": "image/svg+xml",
}  # fmt: skip
"""Of files and of the forms of answers."""


def application(shelf: Shelf, limits: Limits | None = None, names: Iterable[str] = LOOPBACK) -> ASGIApp:
    """The page over the models of ``shelf``, for clients that call it by one of ``names``."""
    page = _Page(shelf, limits or Limits())
    routes = [Route(path, page.static, methods=["GET"]) for path in page.files]
    routes.append(Route("/api/models", page.models, methods=["GET"]))
    routes += [
        Route(f"/api/{kind}/{word}", page.answer(kind, word, action), methods=["POST"])
        for kind, shown in {entry.kind: entry.page for entry in shelf.entries}.items()
        for word, action in shown.actions.items()
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _defect}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.worker, app.state.arrivals = page.worker, page.arrivals
    return Guard(app, names)


class _Page:
    """The handlers. Those of POST get a checked request and give the slices of the answer."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self.worker, self.arrivals = Worker(limits), Arrivals(limits)
        self.drawer = ThreadPoolExecutor(1, "hmrnn-figures")
        self.files = {f"/static/{path.name}": _content(path) for path in STATIC.iterdir() if path.suffix in MEDIA}
        panels = {entry.folder: entry.page.static or STATIC / "default" for entry in shelf.entries}
        sections = b""
        for name, folder in panels.items():
            sections += (folder / "panels.html").read_bytes()
            self.files |= {f"/static/{name}/{path.name}": _content(path) for path in folder.glob("*.js")}
        index, media = self.files.pop("/static/index.html")
        self.files["/"] = index.replace(b"<!-- panels -->", sections), media

    def answer(self, kind: str, word: str, action: Action) -> Answer:
        """What answers the requests to an action of the pages of a kind."""

        def slices(wanted: Wanted) -> Slices:
            page = self.shelf.page(kind, wanted.model)
            made = page.actions[word].answer(page, wanted)
            return parts.figure(made, self.drawer) if action.form == "figure" else getattr(parts, action.form)(made)

        return Answer(slices, action.request, MEDIA[action.form], self.worker, self.arrivals)

    async def static(self, request: Request) -> Response:
        content, media = self.files[request.url.path]
        headers = {"etag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media, headers=headers)

    async def models(self, _: Request) -> Response:
        """The models that the page was started with, and the limits"""
        models = [entry.about(index) for index, entry in enumerate(self.shelf.entries)]
        return _json({"version": __version__, "models": models, "limits": self.limits})


def _content(path: Path) -> tuple[bytes, str]:
    return path.read_bytes(), MEDIA[path.suffix]


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.detail.lower(), error.detail, error.status_code)
    refusal.headers |= error.headers or {}
    return refusal.response()


async def _defect(_: Request, error: Exception) -> Response:
    return Refusal("defect", "a defect of hmrnn; the terminal it runs in shows more", 500).response()


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), headers={"cache-control": "no-store"}, media_type=JSON)
