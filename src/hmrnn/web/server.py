"""The server of the page: its address, timeouts for slow clients, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from hmrnn.errors import InputError
from hmrnn.utils.signals import asked_to_stop
from hmrnn.web.app import application
from hmrnn.web.guard import ENCODED, LOOPBACK
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import Refusal
from hmrnn.web.shelf import open_shelf

WARNING = (
    "warning: {host} can be reached from other machines, without a password or encryption: anyone who reaches it can "
    "use these models and this processor"
)


def serve(sources: Sequence[str], *, host: str, port: int, names: Sequence[str], device: str) -> int:
    """Serve the page until SIGINT or SIGTERM, finish the requests that run, and return the exit status."""
    limits = Limits()
    if device == "cpu":
        torch.set_num_threads(1)  # one symbol after the other leaves no work for more threads
    shelf = open_shelf(sources, device)
    with contextlib.closing(listen(host, port)) as listener:
        where, port, *_ = listener.getsockname()
        own = [] if host in ("0.0.0.0", "::") else [host]
        app = application(shelf, limits, [*LOOPBACK, *own, *names])
        if not ipaddress.ip_address(where).is_loopback:
            print(WARNING.format(host=host), file=sys.stderr)
        print(f"hmrnn explore: {', '.join(entry.name for entry in shelf)}")
        print(f"open {address(host, port)} in a browser; Ctrl-C ends it", flush=True)
        server = uvicorn.Server(settings(app, limits))
        with asked_to_stop() as asked:  # uvicorn raises the signal again after its shutdown
            server.run(sockets=[listener])
    return 128 + signal.Signals[asked[0]] if asked else 0


def settings(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """The settings of uvicorn."""
    return uvicorn.Config(
        app,
        http=protocol(limits),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=16_384,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(limits.seconds) + 5,
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the address. Early connections wait in the listen backlog."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}; choose another --port or --host") from error


def address(host: str, port: int) -> str:
    """The URL of the page for a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP of uvicorn with timeouts: ``patience`` seconds for a client to send its headers and to read its answer.

    With more connections than allowed, the one that has been open longest without a request is closed. What is no HTTP
    is refused as the interface refuses a request.
    """
    patience = limits.patience
    opened: dict[Patient, None] = {}

    class Patient(H11Protocol):
        _request: asyncio.TimerHandle | None = None
        _answer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._request = self.loop.call_later(patience, transport.abort)
            opened[self] = None
            if len(opened) > limits.connections:
                idle = next(one for one in opened if one.cycle is None or one.cycle.response_complete)
                del opened[idle]
                idle.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            opened.pop(self, None)
            for timer in (self._request, self._answer):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                if self._request is not None:
                    self._request.cancel()
                    self._request = None
            elif self._request is None:  # the next request on this connection has begun
                self._request = self.loop.call_later(patience, self.transport.abort)

        def send_400_response(self, msg: str) -> None:
            if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
                self.transport.abort()  # the answer before it is on its way
                return
            refusal = Refusal(400, "bad request", "this is not a request in HTTP/1.1", connection="close").response()
            head = [b": ".join(header) for header in (*refusal.raw_headers, *ENCODED)]
            self.transport.write(b"\r\n".join([b"HTTP/1.1 400 Bad Request", *head, b"", bytes(refusal.body)]))
            self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer = self.loop.call_later(patience, self.transport.abort)

        def resume_writing(self) -> None:
            if self._answer is not None:
                self._answer.cancel()
                self._answer = None
            super().resume_writing()

    return Patient
