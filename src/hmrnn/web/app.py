"""The application: the static files of the page, and the interface that it uses."""

from __future__ import annotations

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
from hmrnn.errors import InputError
from hmrnn.reading.page import Action
from hmrnn.reading.page import Request as Wanted
from hmrnn.web import parts
from hmrnn.web.answer import JSON, Answer
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
    limits = limits or Limits()
    worker, drawer, files = Worker(limits), ThreadPoolExecutor(1, "hmrnn-figures"), static_files(shelf)

    async def static(request: Request) -> Response:
        content, media = files[request.url.path]
        return Response(content, media_type=media, headers={"cache-control": "no-cache"})

    async def models(_: Request) -> Response:
        """The models that the page was started with, and the limits"""
        about = [entry.about(index) for index, entry in enumerate(shelf)]
        content = msgspec.json.encode({"version": __version__, "models": about, "limits": limits})
        return Response(content, headers={"cache-control": "no-store"}, media_type=JSON)

    def answer(kind: str, word: str, action: Action) -> Answer:
        """What answers the requests to an action of the pages of a kind."""

        def slices(wanted: Wanted) -> Slices:
            pages = {number: entry.page for number, entry in enumerate(shelf) if entry.kind == kind}
            if wanted.model not in pages:
                known = ", ".join(map(str, pages))
                raise InputError(f"there is no model {wanted.model} that reads {kind}; those that do are {known}")
            page = pages[wanted.model]
            made = page.actions[word].answer(page, wanted)
            return parts.figure(made, drawer) if action.form == "figure" else getattr(parts, action.form)(made)

        return Answer(slices, action.request, MEDIA[action.form], worker)

    routes = [Route(path, static, methods=["GET"]) for path in files]
    routes.append(Route("/api/models", models, methods=["GET"]))
    routes += [
        Route(f"/api/{kind}/{word}", answer(kind, word, action), methods=["POST"])
        for kind, shown in {entry.kind: entry.page for entry in shelf}.items()
        for word, action in shown.actions.items()
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _defect}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.worker, app.state.files = worker, files
    return Guard(app, names)


def static_files(shelf: Shelf) -> dict[str, tuple[bytes, str]]:
    """By address, the content and the type of each file of the page."""
    found = {f"/static/{path.name}": path for path in STATIC.iterdir() if path.suffix in MEDIA}
    panels = {entry.folder: entry.page.static or STATIC / "default" for entry in shelf}
    for name, folder in panels.items():
        found |= {f"/static/{name}/{path.name}": path for path in folder.glob("*.js")}
    files = {address: (path.read_bytes(), MEDIA[path.suffix]) for address, path in found.items()}
    index, media = files.pop("/static/index.html")
    sections = b"".join((folder / "panels.html").read_bytes() for folder in panels.values())
    return {"/": (index.replace(b"<!-- panels -->", sections), media), **files}


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, error.detail.lower(), error.detail)
    refusal.headers |= error.headers or {}
    return refusal.response()


async def _defect(_: Request, error: Exception) -> Response:
    return Refusal(500, "defect", "a defect of hmrnn; the terminal it runs in shows more").response()
