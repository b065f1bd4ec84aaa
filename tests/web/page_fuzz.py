"""Requests to the page, damaged at random: whatever they hold, the answer is one that the interface describes."""

from __future__ import annotations

import json
import random
from typing import Any

from starlette.testclient import TestClient

import attack
from hmrnn.errors import InputError
from hmrnn.web.guard import HEADERS

PATHS = (
    "/", "/static/page.js", "/api/models", "/api/text/read", "/api/text/segmentation", "/api/text/figure",
    "/api/text/write", "/api/strokes/read", "/api/strokes/segmentation", "/api/strokes/write", "/nowhere",
    "/static/../app.py",
)  # fmt: skip
BODIES: tuple[tuple[str, Any], ...] = (
    ("/api/text/read", {"text": "the cat <b>sat</b>\n", "model": 0}),
    ("/api/text/read", {"text": "\u201cna\u00efve\u201d \u2014 \U0001f40d", "model": 0}),
    ("/api/text/segmentation", {"text": "\u0000\U0001f40d", "model": 2}),
    ("/api/text/figure", {"text": "the cat sat", "model": 0}),
    ("/api/text/write", {"prompt": "abc", "length": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 1}),
    ("/api/strokes/read", {"steps": [[0, 0, 0], [3, -4, 0], [2, 2.5, 1], [1, 1, 0]], "model": 3}),
    ("/api/strokes/segmentation", {"steps": [[0, 0, 0], [1e-160, 1, 0], [1, 0, 1]], "model": 3}),
    ("/api/strokes/write", {"points": 4, "bias": 1.0, "seed": 7, "model": 3}),
)
ALLOWED = {200, 400, 403, 404, 405, 408, 413, 415, 421, 504}
"""No 503: requests come one after the other."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    5e-324,
    "",
    "x" * 2000,
    [],
    {},
    [[]],
    [[0, 0, 2]] * 3,
    "\ud800",
)


def requests(client: TestClient) -> attack.Target:
    """The page without the HTTP parser before it."""

    def run(rng: random.Random) -> None:
        path, body = rng.choice(BODIES)
        match rng.randrange(4):
            case 0:
                data = json.dumps({**body, rng.choice((*body, "other")): rng.choice(VALUES)}).encode()
            case 1:
                data = json.dumps(body).encode()
            case _:
                data = attack.mutate(rng, json.dumps(body).encode())
        headers = {b"host": b"127.0.0.1:8000", b"content-type": b"application/json"}
        if rng.randrange(3) == 0:
            name = rng.choice((*headers, b"origin"))
            headers[name] = attack.mutate(rng, headers.get(name, b"http://127.0.0.1:8000"))
        path = rng.choice((path, path, path, rng.choice(PATHS)))
        method = rng.choice(("POST", "POST", "POST", "GET", "HEAD", "PUT", "OPTIONS"))
        answer = client.request(method, path, content=data, headers=headers)
        assert answer.status_code in ALLOWED, answer
        assert answer.headers.items() >= HEADERS.items()
        if answer.status_code >= 400 and method != "HEAD":
            assert answer.headers["content-type"] == "application/json"
            raise InputError(answer.json()["message"])

    return run
