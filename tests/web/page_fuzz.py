"""Requests to the page, damaged at random: whatever they hold, the answer is one that the interface describes."""

from __future__ import annotations

import json
import random
from typing import Any

import anyio
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
ALLOWED = {200, 304, 400, 403, 404, 405, 408, 413, 415, 421, 504}
"""No 503: requests come one after the other, and those whose bodies never end take no place in the queue."""
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
    """The page as an ASGI application, without the HTTP parser before it; some bodies never come to an end."""

    def run(rng: random.Random) -> None:
        if rng.randrange(4) == 0:
            target, body = rng.choice(BODIES)
            data = json.dumps(body).encode()
            headers = [[b"host", b"127.0.0.1:8000"], [b"content-type", b"application/json"]]
            begun = data[: rng.randrange(len(data) + 1)]
            client.portal.start_task_soon(ask, client.app, "POST", target.encode(), headers, [begun], True)  # type: ignore[union-attr]
        target, body = rng.choice(BODIES)
        match rng.randrange(4):
            case 0:
                body = {**body, rng.choice((*body, "other")): rng.choice(VALUES)}
                data = json.dumps(body).encode()
            case 1:
                data = json.dumps(body).encode()
            case _:
                data = attack.mutate(rng, json.dumps(body).encode())
        headers = [
            [b"host", b"127.0.0.1:8000"],
            [b"content-type", b"application/json"],
            [b"content-length", b"%d" % len(data)],
        ]
        path = rng.choice((target, target, target, rng.choice(PATHS))).encode()
        if rng.randrange(3) == 0:
            damaged = rng.choice(headers)
            part = rng.randrange(2)
            damaged[part] = attack.mutate(rng, damaged[part])
        if rng.randrange(8) == 0:
            headers.append([b"origin", attack.mutate(rng, b"http://127.0.0.1:8000")])
        if rng.randrange(4) == 0:
            path = b"/" + attack.mutate(rng, path)[1:]
        method = rng.choice(("POST", "POST", "POST", "GET", "HEAD", "PUT", "OPTIONS", "\xff"))
        status, received, answer = client.portal.call(ask, client.app, method, path, headers, pieces(rng, data))  # type: ignore[union-attr]
        assert status in ALLOWED, (status, answer)
        assert received.items() >= {name: HEADERS[name] for name in HEADERS}.items()
        if status >= 400 and method != "HEAD":
            assert received["content-type"] == "application/json"
            said = json.loads(answer)
            raise InputError(said["message"])

    return run


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The body as it might arrive."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 3))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]


async def ask(
    app: Any, method: str, path: bytes, headers: list[list[bytes]], body: list[bytes], endless: bool = False
) -> tuple[int, dict, bytes]:
    """Status, headers and body of the answer to one request; of an ``endless`` one more is to come, and never does."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path.decode("utf-8", "replace"), "raw_path": path, "query_string": b"", "root_path": "",
        "headers": [(name.lower(), value) for name, value in headers], "state": {},
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
    }  # fmt: skip
    left = list(body)
    starts: list[dict[str, Any]] = []
    answer = b""

    async def receive() -> dict[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or endless}
        await anyio.sleep_forever()
        raise AssertionError("it woke up")

    async def send(message: dict[str, Any]) -> None:
        nonlocal answer
        if message["type"] == "http.response.start":
            starts.append(message)
        else:
            answer += message.get("body", b"")

    await app(scope, receive, send)
    (start,) = starts
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, answer
