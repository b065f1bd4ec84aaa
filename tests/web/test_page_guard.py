"""Whom the page answers, what its answers forbid, and what it is made of."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from hmrnn.web.app import STATIC, application
from hmrnn.web.guard import HEADERS
from hmrnn.web.shelf import Shelf

READ = "/api/text/read"
FILES = [
    path
    for page in ("web", "kinds/text", "kinds/strokes")
    for path in (STATIC.parents[1] / page / "static").glob("*.*")
]


def test_every_answer_has_strict_headers(client: TestClient) -> None:
    for response in (
        client.get("/"),
        client.get("/api/models"),
        client.get("/nowhere"),
        client.post(READ, json={"text": "a"}),
        client.post(READ, json={"text": ""}),
        client.get("/", headers={"host": "evil.example"}),
    ):
        for name, value in HEADERS.items():
            assert response.headers.get_list(name) == [value]
        assert not [name for name in response.headers if name.startswith("access-control")]
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example", "0.0.0.0",
             "127.0.0.1:x", "localhost/", "[::1", "\xe9vil"],
)  # fmt: skip
def test_other_names_are_refused(client: TestClient, host: str) -> None:
    """The page of a site whose name was made to resolve to this machine gets nothing, not even the page."""
    for path in ("/", "/api/models", "/static/app.js"):
        response = client.get(path, headers={b"host": host.encode("latin-1")})
        assert response.status_code == 421
        assert response.json()["error"] == "host"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:80", "LocalHost", "[::1]:8000"])
def test_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


def test_names_can_be_added(shelf: Shelf) -> None:
    with TestClient(application(shelf, names=["Lab-PC"]), base_url="http://lab-pc:8000") as client:
        assert client.get("/").status_code == 200
        assert client.get("/", headers={"host": "localhost"}).status_code == 421


def test_a_name_with_tls_has_an_origin_with_tls(shelf: Shelf) -> None:
    """A proxy with TLS passes requests on by http; the origin of the page is that of the proxy."""
    with TestClient(application(shelf, names=["https://Lab.example"]), base_url="http://lab.example") as client:
        for origin, status in (("https://lab.example", 200), ("http://lab.example", 403)):
            assert client.post(READ, json={"text": "a"}, headers={"origin": origin}).status_code == status


def test_other_sites_are_refused(client: TestClient) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9000", "http://127.0.0.1", "127.0.0.1:8000",
                   "https://127.0.0.1:8000", "ftp://127.0.0.1:8000", "http://http://127.0.0.1:8000"):  # fmt: skip
        response = client.post(READ, json={"text": "a"}, headers={"origin": origin})
        assert response.status_code == 403
        assert response.json()["error"] == "origin"
    assert client.post(READ, json={"text": "a"}, headers={"origin": "http://127.0.0.1:8000"}).status_code == 200
    preflight = client.options(READ, headers={"origin": "http://127.0.0.1:8000"})
    assert preflight.status_code == 405


def test_static_files_and_nothing_else(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    for path in FILES:
        if path.suffix != ".html":
            folder = {STATIC: ""}.get(path.parent, f"{path.parent.parent.name}/")
            assert client.get(f"/static/{folder}{path.name}").content == path.read_bytes()
    for path in ("/static/", "/static/index.html", "/static/text/panels.html", "/static/../app.py",
                 "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/app.py", "/static/app.js/",
                 "/static/app.js%00"):  # fmt: skip
        assert client.get(path).status_code == 404, path
    assert client.post("/").status_code == 405


def test_the_page_asks_no_other_host_and_runs_no_text() -> None:
    for path in FILES:
        text = path.read_text()
        addresses = set(re.findall(r"\b(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", text)
