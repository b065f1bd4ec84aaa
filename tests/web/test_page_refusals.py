"""What the interface refuses, and how it says so: bad requests, and limits of size, jobs and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from hmrnn.web import app as app_module

READ = "/api/text/read"
BAD: list[tuple[str, str, int]] = [  # path, body, status
    (READ, "", 400),
    (READ, "{", 400),
    (READ, "[]", 400),
    (READ, "{}", 400),
    (READ, '{"text": ""}', 400),
    (READ, '{"text": 5}', 400),
    (READ, '{"text": "a", "model": 4}', 400),
    (READ, '{"text": "a", "model": -1}', 400),
    (READ, '{"text": "a", "model": "/etc"}', 400),
    (READ, '{"text": "a", "path": "/etc/passwd"}', 400),
    (READ, '{"text": "a", "model": 3}', 400),
    (READ, '{"text": "\\ud800"}', 400),
    (READ, '{"text": "\\ud800 and more"}', 400),
    (READ, "[" * 100_000, 400),
    ("/api/text/figure", '{"text": "a", "model": 9}', 400),
    ("/api/text/write", '{"length": 0}', 400),
    ("/api/text/write", '{"length": 999999}', 413),
    ("/api/text/write", '{"temperature": -1}', 400),
    ("/api/text/write", '{"temperature": 1e999}', 400),
    ("/api/text/write", '{"top_p": 0}', 400),
    ("/api/text/write", '{"seed": 9223372036854775808}', 400),
    ("/api/text/write", '{"seed": -1}', 400),
    ("/api/strokes/write", '{"model": 3, "seed": 9223372036854775808}', 400),
    ("/api/strokes/read", '{"steps": [[0, 0, 0], [1, 1, 1]]}', 400),
    ("/api/strokes/read", '{"model": 3, "steps": [[0, 0, 0]]}', 400),
    ("/api/strokes/read", '{"model": 3, "steps": [[0, 0, 0], [0, 0, 1]]}', 400),
    ("/api/strokes/read", '{"model": 3, "steps": [[0, 0, 0], [1e300, 0, 1]]}', 400),
    ("/api/strokes/read", '{"model": 3, "steps": [[0, 0, 0], [1, 0, 2]]}', 400),
    ("/api/strokes/segmentation", '{"model": 0, "steps": [[0, 0, 0], [1, 1, 1]]}', 400),
    ("/api/strokes/write", '{"model": 3, "points": 100000}', 413),
]


@pytest.mark.parametrize(("path", "body", "status"), BAD)
def test_what_cannot_be_done_is_said(client: TestClient, path: str, body: str, status: int) -> None:
    response = client.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    answer = response.json()
    assert set(answer) == {"error", "message"}
    assert "\n" not in answer["message"]


def test_a_body_must_be_json_by_its_type(client: TestClient) -> None:
    """A form or plain text could be sent by any site's page without asking first; JSON could not."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        response = client.post(READ, content='{"text": "a"}', headers={"content-type": kind})
        assert response.status_code == 415
        assert response.json()["error"] == "type"


@pytest.mark.parametrize("limited", [{"body": 60, "text": 5, "figure": 3, "prompt": 4}], indirect=True)
def test_size_limits(limited: TestClient) -> None:
    assert limited.post(READ, json={"text": "abcde"}).status_code == 200
    for path, request in (
        (READ, {"text": "abcdef"}),
        ("/api/text/segmentation", {"text": "abcdef"}),
        ("/api/text/figure", {"text": "abcd"}),
        ("/api/text/write", {"prompt": "abcde"}),
        (READ, {"text": "a" * 100}),
    ):
        assert limited.post(path, json=request).status_code == 413

    def pieces() -> Iterator[bytes]:  # no length is announced
        for _ in range(10):
            yield b" " * 50

    response = limited.post(READ, content=pieces(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("limited", [{"jobs": 0}], indirect=True)
def test_busy_says_when_to_come_back(limited: TestClient) -> None:
    for path in (READ, "/api/text/write", "/api/text/figure", "/api/text/segmentation", "/api/strokes/write"):
        body = {"text": "a"} if "write" not in path else {"model": 3} if "strokes" in path else {"prompt": "a"}
        response = limited.post(path, json=body)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"] == "busy"
    assert limited.get("/").status_code == 200  # the page itself takes no place


@pytest.mark.parametrize("limited", [{"seconds": 0.0}], indirect=True)
def test_time_is_limited_before_the_first_part(limited: TestClient) -> None:
    response = limited.post(READ, json={"text": "a"})
    assert response.status_code == 504
    assert response.json()["error"] == "time"


@pytest.mark.parametrize("limited", [{"seconds": 0.5}], indirect=True)
def test_time_is_limited_after_the_first_part(limited: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> Iterator[bytes]:
        yield b'{"start": 0}\n'
        time.sleep(1)
        yield b'{"start": 1}\n'

    monkeypatch.setattr(app_module.parts, "lines", slow)
    answer = [json.loads(line) for line in limited.post(READ, json={"text": "a"}).text.splitlines()]
    assert answer[0] == {"start": 0}
    assert [line.get("error") for line in answer[1:]] == ["time"]
