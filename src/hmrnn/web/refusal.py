"""Answers that are errors: a status, a word for programs and a line for people."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

KINDS = {
    "bad request": (400, "The request cannot be done as asked"),
    "origin": (403, "Sent by the page of another site"),
    "slow": (408, "The body came too slowly"),
    "too large": (413, "The request is too large"),
    "type": (415, "The body is not JSON"),
    "host": (421, "The name in Host is not one of this page"),
    "busy": (503, "Too many requests at once; Retry-After says in how many seconds to try again"),
    "time": (504, "The request took too long"),
}
"""The word of each error that the interface describes: its status and what it means."""


class Error(msgspec.Struct):
    """What was wrong: a word for programs, a line for people."""

    error: str
    message: str


class Refusal(Exception):
    """An error to answer a request with; ``headers`` are those of the response, with _ for -."""

    def __init__(self, kind: str, message: str, status: int | None = None, **headers: str) -> None:
        super().__init__(message)
        self.body = Error(kind, message)
        self.status = KINDS[kind][0] if status is None else status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> Response:
        headers = {"cache-control": "no-store", **self.headers}
        return Response(msgspec.json.encode(self.body), self.status, headers, "application/json")
