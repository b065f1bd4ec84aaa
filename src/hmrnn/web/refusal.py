"""Answers that are errors: a status, a word for programs and a line for people."""

from __future__ import annotations

import msgspec
from starlette.responses import Response


class Refusal(Exception):
    """An error to answer a request with; ``headers`` are those of the response, with _ for -."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.body = {"error": kind, "message": message}  # a word for programs, a line for people
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> Response:
        headers = {"cache-control": "no-store", **self.headers}
        return Response(msgspec.json.encode(self.body), self.status, headers, "application/json")
