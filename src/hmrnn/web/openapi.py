"""The description of the interface that /openapi.json gives, generated from the endpoints and their types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hmrnn import __version__
from hmrnn.web.bodies import schemas
from hmrnn.web.limits import Limits
from hmrnn.web.refusal import KINDS, Error

JSON, NDJSON, SVG = "application/json", "application/x-ndjson", "image/svg+xml"


_UNTYPED = {JSON: {"type": "object"}, SVG: {"type": "string"}}


class Endpoint(NamedTuple):
    """A path of the interface: POST if it takes a request, else GET. The docstring of ``handler`` describes it."""

    path: str
    handler: Callable[..., Any]
    request: type | None
    media: str
    answer: tuple[type, ...]
    """The type of the body, or those of its lines; none for a body without one."""


def description(endpoints: Sequence[Endpoint], limits: Limits) -> dict[str, Any]:
    """The interface in OpenAPI 3.1, with the limits of this page."""
    kinds = {kind for endpoint in endpoints for kind in (endpoint.request, *endpoint.answer) if kind}
    responses = {str(status): _content(JSON, _ref(Error), text) for status, text in KINDS.values()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hmrnn explore",
            "version": __version__,
            "description": "Segments that a Hierarchical Multiscale LSTM finds in a sequence, and what it generates. "
            "Answers of type application/x-ndjson are lines of JSON, each sent as soon as it is made.",
        },
        "paths": {endpoint.path: _path(endpoint) for endpoint in endpoints},
        "components": {
            "schemas": schemas(sorted({*kinds, Error}, key=lambda kind: kind.__name__), limits),
            "responses": responses,
        },
    }


def _path(endpoint: Endpoint) -> dict[str, Any]:
    refs = [_ref(kind) for kind in endpoint.answer]
    schema: dict[str, Any] = {"oneOf": refs} if len(refs) > 1 else refs[0] if refs else _UNTYPED[endpoint.media]
    errors = KINDS if endpoint.request else ("origin", "host")
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": inspect.getdoc(endpoint.handler),
        "responses": {
            "200": _content(endpoint.media, schema, "The answer"),
            **{str(KINDS[kind][0]): {"$ref": f"#/components/responses/{KINDS[kind][0]}"} for kind in errors},
        },
    }
    if endpoint.request is None:
        return {"get": operation}
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(endpoint.request)}}}
    return {"post": operation}


def _ref(kind: type) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(media: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}
