"""Checks of the Host and Origin of every request, and security headers on every answer."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hmrnn.web.refusal import Refusal

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
ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """ASGI middleware that refuses requests to another name and requests from the scripts of another site.

    Another site can let its own name resolve to 127.0.0.1 (DNS rebinding); its requests then have that name in Host.
    Its requests to a name of this page have its Origin. No answer has a CORS header, so it could not read one.

    A name that begins with https:// is that of a proxy with TLS before the page, whose origin has this scheme.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app = app
        split = [name.lower().rpartition("://") for name in names]
        self.schemes = {name.strip("[]"): scheme or "http" for scheme, _, name in split}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *ENCODED]
            await send(message)

        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        scheme = self.schemes.get(_name(hosts[0]) or "") if len(hosts) == 1 else None
        if scheme is None:
            shown = ", ".join(sorted(self.schemes))
            message = f"this page answers to {shown} only; to add a name, start with --name"
            await Refusal(421, "host", message, connection="close").response()(scope, receive, guarded)
        elif origins and [origin.lower() for origin in origins] != [f"{scheme}://{hosts[0].lower()}"]:
            message = "the page of another site may not use this one"
            await Refusal(403, "origin", message, connection="close").response()(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)


def _name(host: str) -> str | None:
    """The name in ``name`` or ``name:port``; None if ``host`` is something else."""
    try:
        parts = urlsplit("//" + host)
        _ = parts.port  # raises ValueError if it is no number
    except ValueError:
        return None
    extra = parts.username is not None or parts.path or parts.query or parts.fragment
    return None if extra or not host.isascii() else parts.hostname
