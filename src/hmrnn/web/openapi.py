"""The description of the page's interface, as /openapi.json gives it."""

from __future__ import annotations

from typing import Any

from hmrnn import __version__
from hmrnn.web.limits import Limits

Schema = dict[str, Any]


def description(limits: Limits) -> Schema:
    """OpenAPI 3.1, with the limits that hold."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hmrnn explore",
            "version": __version__,
            "description": "What a Hierarchical Multiscale LSTM finds in a sequence, and what it goes on with. Answers "
            "of several parts are lines of JSON, each sent as soon as it is made.",
        },
        "paths": {
            "/api/models": {
                "get": {
                    "operationId": "models",
                    "summary": "The models the page was started with, and the limits that hold",
                    "responses": {"200": _content("application/json", _ref("Models")), **_errors("421", "403")},
                }
            },
            "/api/read": _post(
                "read",
                "What a model finds in a text, part by part",
                "ReadRequest",
                "application/x-ndjson",
                _ref("Line"),
            ),
            "/api/plain": _post(
                "plain",
                "A text in symbols that a model knows: others without accents, in plain signs, or left out",
                "ReadRequest",
                "application/json",
                {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
            ),
            "/api/segmentation": _post(
                "segmentation",
                "The same as one object, as `hmrnn segment --json` writes it",
                "ReadRequest",
                "application/json",
                _ref("Segmentation"),
            ),
            "/api/figure": _post(
                "figure", "The paper's Figure 4 of a text", "FigureRequest", "image/svg+xml", {"type": "string"}
            ),
            "/api/write": _post(
                "write",
                "What a model goes on with, part by part; the prompt comes first",
                "WriteRequest",
                "application/x-ndjson",
                _ref("Line"),
            ),
            "/api/strokes/read": _post(
                "readStrokes",
                "What a handwriting model finds in a drawing, part by part; a symbol is a point",
                "DrawingRequest",
                "application/x-ndjson",
                _ref("Line"),
            ),
            "/api/strokes/segmentation": _post(
                "strokesSegmentation",
                "The same as one object",
                "DrawingRequest",
                "application/json",
                _ref("Segmentation"),
            ),
            "/api/strokes/write": _post(
                "writeStrokes",
                "A line that a handwriting model makes up, part by part; each part has its steps",
                "HandwritingRequest",
                "application/x-ndjson",
                _ref("Line"),
            ),
            "/openapi.json": {
                "get": {
                    "operationId": "openapi",
                    "summary": "This description",
                    "responses": {"200": _content("application/json", {"type": "object"}), **_errors("421", "403")},
                }
            },
        },
        "components": {"schemas": _schemas(limits), "responses": _responses()},
    }


def _schemas(limits: Limits) -> dict[str, Schema]:
    whole = {"type": "integer", "minimum": 0}
    numbers: Schema = {"type": "array", "items": {"type": ["number", "null"]}}
    length: Schema = {"type": "number", "minimum": -1e6, "maximum": 1e6}
    step: Schema = {
        "type": "array",
        "description": "Δx, Δy (y downwards), and 1 where the pen is lifted after the point",
        "prefixItems": [length, length, {"enum": [0, 1]}],
        "minItems": 3,
        "maxItems": 3,
    }
    model: Schema = {**whole, "maximum": 1000, "default": 0, "description": "its place in /api/models"}
    return {
        "Models": {
            "type": "object",
            "required": ["version", "models", "limits"],
            "properties": {
                "version": {"type": "string"},
                "models": {"type": "array", "items": _ref("Model")},
                "limits": {"type": "object", "additionalProperties": {"type": "number"}},
            },
        },
        "Model": {
            "type": "object",
            "required": ["model", "name", "kind", "layers", "parameters"],
            "properties": {
                "model": whole,
                "name": {"type": "string"},
                "kind": {"enum": ["text", "handwriting"]},
                "layers": {"type": "array", "items": whole, "description": "size of each layer, the lowest first"},
                "parameters": whole,
                "unit": {"enum": ["character", "byte", "point"]},
                "alphabet": {
                    "type": ["string", "null"],
                    "description": "the characters it knows; null where symbols are others",
                },
            },
        },
        **{
            name: {
                "type": "object",
                "required": ["text"],
                "additionalProperties": False,
                "properties": {"text": {"type": "string", "minLength": 1, "maxLength": longest}, "model": model},
            }
            for name, longest in (("ReadRequest", limits.text), ("FigureRequest", limits.figure))
        },
        "WriteRequest": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "prompt": {"type": "string", "maxLength": limits.prompt, "default": ""},
                "model": model,
                "length": {"type": "integer", "minimum": 1, "maximum": limits.length, "default": 300},
                "temperature": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.8},
                "top_k": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**63 - 1},
                "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
            },
        },
        "DrawingRequest": {
            "type": "object",
            "required": ["steps"],
            "additionalProperties": False,
            "properties": {
                "steps": {"type": "array", "minItems": 2, "maxItems": limits.points, "items": step},
                "model": model,
            },
        },
        "HandwritingRequest": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "model": model,
                "points": {"type": "integer", "minimum": 1, "maximum": limits.points, "default": 400},
                "bias": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.5},
                "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
            },
        },
        "Segmentation": {
            "type": "object",
            "required": ["text", "symbols", "nested", "levels", "layers", "updates", "bits"],
        },
        "Line": {"oneOf": [_ref("Part"), _ref("End"), _ref("Error")]},
        "Part": {
            "type": "object",
            "description": "What the network did at a run of symbols; lists per level or layer hold one entry a symbol",
            "required": ["start", "symbols", "boundaries", "probabilities", "operations", "norms", "bits"],
            "properties": {
                "start": {**whole, "description": "place of the first of these symbols"},
                "symbols": {"type": "array", "items": {"type": "string"}},
                "boundaries": {"type": "array", "items": {"type": "array", "items": {"enum": [0, 1]}}},
                "probabilities": {"type": "array", "items": numbers},
                "operations": {"type": "array", "items": {"type": "string", "pattern": "^[UCF]*$"}},
                "norms": {"type": "array", "items": numbers},
                "bits": numbers,
                "steps": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
                "given": {**whole, "description": "how many of these symbols are the prompt's"},
            },
        },
        "End": {
            "type": "object",
            "required": ["end", "count", "seconds"],
            "properties": {
                "end": {"const": True},
                "count": whole,
                "seconds": {"type": "number"},
                "warning": {"type": "string", "description": "what is wrong with what was written, if anything is"},
            },
        },
        "Error": {
            "type": "object",
            "required": ["error", "message"],
            "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
        },
    }


_ERRORS = {
    "400": "The request cannot be done as asked",
    "403": "Sent by another site's page",
    "408": "The body came too slowly",
    "413": "Too much at once",
    "415": "The body is not JSON",
    "421": "Called by a name that is not this page's",
    "503": "Busy: too many requests at once",
    "504": "It took too long",
}


def _responses() -> dict[str, Schema]:
    found = {status: _content("application/json", _ref("Error"), text) for status, text in _ERRORS.items()}
    found["503"]["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return found


def _errors(*statuses: str) -> dict[str, Schema]:
    return {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(media: str, schema: Schema, text: str = "The answer") -> Schema:
    return {"description": text, "content": {media: {"schema": schema}}}


def _post(name: str, summary: str, request: str, media: str, schema: Schema) -> Schema:
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(request)}}},
            "responses": {"200": _content(media, schema), **_errors(*_ERRORS)},
        }
    }
