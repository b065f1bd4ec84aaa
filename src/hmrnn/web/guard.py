"""What every request passes first and every answer last: whom the page talks to, and what its answers forbid."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Lets a request through only under a name that the page goes by, and not from another site's script.

    A page elsewhere can have its own name resolve to 127.0.0.1 (DNS rebinding); its requests then carry that name in
    Host and end here. Its requests to our name carry its Origin and end here, too; and nothing here ever sends a CORS
    header, so it could read no answer.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app = app
        self.names = frozenset(name.lower().strip("[]") for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ENCODED]
            await send(message)

        values: dict[bytes, list[bytes]] = {b"host": [], b"origin": []}
        for name, value in scope["headers"]:
            if name in values:
                values[name].append(value)
        hosts, origins = values[b"host"], values[b"origin"]
        if len(hosts) != 1 or _name(hosts[0]) not in self.names:
            shown = ", ".join(sorted(self.names))
            await _refuse(guarded, 421, "host", f"this page answers to {shown} only; to add a name, start with --name")
        elif origins and [origin.partition(b"://")[2].lower() for origin in origins] != [hosts[0].lower()]:
            await _refuse(guarded, 403, "origin", "another site's page may not use this one")
        else:
            await self.app(scope, receive, guarded)


_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


def _name(host: bytes) -> str | None:
    """The name in ``name:port``; None if it is anything else."""
    try:
        parts = urlsplit("//" + host.decode("ascii"))
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    extra = parts.username is not None or parts.path or parts.query or parts.fragment
    return None if extra else parts.hostname


async def _refuse(send: Send, status: int, error: str, message: str) -> None:
    body = msgspec.json.encode({"error": error, "message": message})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
