"""The server: clients that are slow, leave or come all at once; its address, its end, the command that starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pages import WAIT, Server, everything, until

import tiny
from hmrnn.cli.main import run
from hmrnn.kinds.text.model import TextModel
from hmrnn.kinds.text.page import TextPage
from hmrnn.reading.page import Parts
from hmrnn.reading.vocabulary import Reading
from hmrnn.web import app as app_module
from hmrnn.web import server as server_module
from hmrnn.web.limits import Limits
from hmrnn.web.server import address, listen
from hmrnn.web.shelf import Shelf, open_shelf
from refusals import refused


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """/api/text/read never comes to an end by itself; "closed" becomes true when it is ended."""
    noted = {"closed": False}

    def work(*_: object) -> Iterator[bytes]:
        try:
            while True:
                time.sleep(0.005)
                yield b'{"start": 0, "padding": "' + b" " * 20_000 + b'"}\n'
        finally:
            noted["closed"] = True

    monkeypatch.setattr(app_module.parts, "lines", work)
    return noted


def test_a_client_that_leaves_ends_its_work(server: Server, endless: dict[str, bool]) -> None:
    connection = server.post("/api/text/read", {"text": "a"})
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert server.worker.jobs == 1
    connection.close()
    until(lambda: server.worker.jobs == 0 and endless["closed"])


@pytest.fixture
def endless_text(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The text "endless" has no end for a model that reads; "closed" becomes true when the reading is ended."""
    noted, read = {"closed": False}, TextPage.read

    def work(page: TextPage, wanted: Any) -> Parts:
        if wanted.text != "endless":
            return (yield from read(page, wanted))
        try:
            while True:
                yield from read(page, wanted)
        finally:
            noted["closed"] = True

    for word, action in TextPage.actions.items():
        if action.answer is read:
            monkeypatch.setitem(TextPage.actions, word, action._replace(answer=work))
    return noted


@pytest.fixture
def endless_drawing(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A figure whose drawing has no end; "begun" and "closed" say when it begins and when it is ended."""
    noted = {"begun": False, "closed": False}

    class Figure:
        def savefig(self, file: Any, **_: object) -> None:
            noted["begun"] = True
            try:
                while True:
                    file.write(b" ")
                    time.sleep(0.001)
            finally:
                noted["closed"] = True

    monkeypatch.setattr("hmrnn.plots.text.figure4", lambda _: Figure())
    return noted


@pytest.mark.parametrize("path", ["/api/text/segmentation", "/api/text/figure"])
def test_long_work_holds_up_nobody_and_ends_when_its_client_leaves(
    server: Server, endless_text: dict[str, bool], path: str
) -> None:
    connection = server.post(path, {"text": "endless"})
    until(lambda: server.worker.jobs == 1)
    answer = httpx.post(f"{server.url}/api/text/segmentation", json={"text": "a short text"}, timeout=WAIT)
    assert answer.json()["text"] == "a short text"
    until(lambda: server.worker.jobs == 1)  # a job gives up its place just after its answer was sent
    assert not endless_text["closed"]
    connection.close()
    until(lambda: server.worker.jobs == 0 and endless_text["closed"])


@pytest.mark.parametrize("path", ["/api/text/read", "/api/text/segmentation", "/api/text/figure", "/api/text/write"])
def test_the_thread_of_the_models_turns_text_into_symbols(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Many unknown symbols take a while: the event loop serves other clients meanwhile."""
    threads, reading = [], TextModel.reading

    def noted(*args: Any, **kwargs: Any) -> Reading:
        threads.append(threading.current_thread().name)
        return reading(*args, **kwargs)

    monkeypatch.setattr(TextModel, "reading", noted)
    body = {"prompt": "É", "length": 1} if path == "/api/text/write" else {"text": "É"}
    assert httpx.post(f"{server.url}{path}", json=body, timeout=WAIT).status_code == 200
    assert [name.partition("_")[0] for name in threads] == ["hmrnn-models"]


def test_a_drawing_holds_up_nobody_and_ends_when_its_client_leaves(
    server: Server, endless_drawing: dict[str, bool]
) -> None:
    connection = server.post("/api/text/figure", {"text": "abc"})
    waiting = server.post("/api/text/figure", {"text": "abc"})
    until(lambda: endless_drawing["begun"])
    assert httpx.post(f"{server.url}/api/text/segmentation", json={"text": "abc"}, timeout=WAIT).status_code == 200
    assert not endless_drawing["closed"]
    waiting.close()  # it has not been begun
    until(lambda: server.worker.jobs == 1)
    connection.close()
    until(lambda: server.worker.jobs == 0 and endless_drawing["closed"])


def test_all_work_ends_at_the_limit_of_time(
    shelf: Shelf, endless_text: dict[str, bool], endless_drawing: dict[str, bool]
) -> None:
    with Server(shelf, Limits(seconds=0.5)).running() as server:
        for path, text, noted in (
            ("/api/text/segmentation", "endless", endless_text),
            ("/api/text/figure", "endless", endless_text),
            ("/api/text/figure", "abc", endless_drawing),
        ):
            noted["closed"] = False
            answer = httpx.post(f"{server.url}{path}", json={"text": text}, timeout=WAIT)
            assert (answer.status_code, answer.json()["error"]) == (504, "time")
            until(lambda noted=noted: noted["closed"])


@pytest.mark.parametrize("path", ["/api/text/segmentation", "/static/app.js"])
def test_a_client_that_never_reads_a_large_answer_is_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """One body, larger than the buffers of both sockets, instead of many parts."""
    large = b"x" * (32 << 20)
    if path == "/api/text/segmentation":
        monkeypatch.setattr(app_module.parts, "whole", lambda _: iter([large]))
        connection = server.post(path, {"text": "abc"})
        until(lambda: server.worker.jobs == 1)
    else:
        files = server.app.app.state.files
        monkeypatch.setitem(files, path, (large, files[path][1]))
        connection = server.connect()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    state = server.server.server_state
    until(lambda: len(state.connections) == 1)
    until(lambda: server.worker.jobs == 0 and len(state.connections) == 0)
    assert len(everything(connection)) < len(large)


def test_slow_headers_are_cut_off(server: Server) -> None:
    connection = server.connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
    assert everything(connection) == b""
    connection = server.connect()  # also after a whole request on the same connection
    connection.sendall(b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert connection.recv(12) == b"HTTP/1.1 200"
    connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
    assert b"HTTP/1.1" not in everything(connection)


def slow_body(server: Server) -> socket.socket:
    """A connection on which the first byte of a body was sent."""
    connection = server.connect()
    connection.sendall(
        b"POST /api/text/read HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99\r\n\r\n{"
    )
    return connection


def test_slow_bodies_and_connections_without_a_request_make_room(shelf: Shelf) -> None:
    with Server(shelf, Limits(jobs=1, connections=4, patience=2.0)).running() as server:
        state = server.server.server_state
        silent = [server.connect() for _ in range(4)]
        until(lambda: len(state.connections) == 4)
        assert httpx.get(f"{server.url}/api/models", timeout=WAIT).status_code == 200
        assert everything(silent[0]) == b""  # the one that was opened first
        busy = [slow_body(server) for _ in range(3)]
        read = httpx.post(f"{server.url}/api/text/read", json={"text": "abc"}, timeout=WAIT)
        assert read.status_code == 200  # they take no place in the queue
        for connection in busy:
            answer = everything(connection)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b'"error":"slow"' in answer
        for connection in silent:
            connection.close()


CALL = b"POST /api/text/read HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
NO_HTTP = (
    b"\x16\x03\x01 this is no HTTP\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n: no name\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 40_000,
    CALL + b"Content-Length: many\r\n\r\n",
    CALL + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    CALL + b'Content-Length: 13\r\n\r\n{"text": "a"}' + b"no HTTP\r\n\r\n",  # while the first is answered
)


@pytest.mark.parametrize("sent", NO_HTTP)
def test_what_is_no_http_is_refused_in_the_form_of_the_interface(
    sent: bytes, server: Server, endless: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word in the terminal, however often."""
    with server.connect() as connection:
        connection.sendall(sent)
        answer = everything(connection)
    if not answer.startswith(b"HTTP/1.1 200"):  # to what came before
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"\r\nx-content-type-options: nosniff" in head
        assert json.loads(body)["error"] == "bad request"
    until(lambda: server.worker.jobs == 0)
    assert httpx.get(f"{server.url}/api/models", timeout=WAIT).status_code == 200
    assert not caplog.records


def test_an_address_is_free_or_refused() -> None:
    with listen("127.0.0.1", 0) as first:
        socket.create_connection(first.getsockname(), timeout=WAIT).close()  # an early connection waits in the backlog
        with refused():
            listen("127.0.0.1", first.getsockname()[1])
    with refused():
        listen("nowhere.invalid", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_another_address_must_be_asked_for_and_is_warned_of(
    host: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda self, sockets: used.append((self.config, sockets[0].getsockname()))
    )
    monkeypatch.setattr(server_module.torch, "set_num_threads", lambda _: None)
    extra = [] if host == "127.0.0.1" else ["--host", host, "--name", "lab-pc"]
    assert run(["explore", "-m", str(runs / "small"), "--port", "0", *extra]) == 0
    ((config, bound),) = used
    assert bound[0] == host
    names = {"127.0.0.1", "localhost", "::1"}
    shown = capsys.readouterr()
    assert f"open http://127.0.0.1:{bound[1]}/" in shown.out
    assert set(config.app.schemes) == names | ({"lab-pc"} if extra else set())
    assert ("0.0.0.0" in shown.err) == bool(extra)


def test_names_of_models(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best-00000007").symlink_to(runs / "small")
    sources = [runs / "small", runs / "small", tmp_path / "run", runs / "small"]
    assert [entry.name for entry in open_shelf(sources)] == ["small", "small (2)", "run", "small (3)"]


def test_command_says_what_is_missing(runs: Path, monkeypatch: pytest.MonkeyPatch, command: tiny.Command) -> None:
    monkeypatch.setitem(sys.modules, "hmrnn.web.server", None)
    with pytest.raises(ModuleNotFoundError):
        tiny.hmrnn("explore", "-m", runs / "small")
    monkeypatch.delitem(sys.modules, "hmrnn.web.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "uvicorn" in command.refused("explore -m", runs / "small")


def test_sigterm_finishes_what_runs_and_exits(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bound: list[str] = []
    last: list[str] = []

    def noted(host: str, port: int) -> socket.socket:
        listener = listen(host, port)
        bound.append(address(host, listener.getsockname()[1]))
        return listener

    def visit() -> None:
        until(lambda: bool(bound))
        with httpx.stream(
            "POST", f"{bound[0]}api/text/write", json={"length": 250, "seed": 1}, timeout=WAIT
        ) as response:
            lines = response.iter_lines()
            next(lines)
            os.kill(os.getpid(), signal.SIGTERM)
            *_, end = lines
            last.append(end)

    monkeypatch.setattr(server_module, "listen", noted)
    visitor = threading.Thread(target=visit)
    visitor.start()
    assert tiny.hmrnn("explore", "-m", runs / "small", "--port", "0") == 128 + signal.SIGTERM
    visitor.join(WAIT)
    assert json.loads(last[0])["end"] is True
    assert capsys.readouterr().err == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(bound[0])
