"""What the OpenAPI page shows for the routes whose content FastAPI cannot know. A test sends every example."""

from __future__ import annotations

from typing import Any

DESCRIPTION = """The requests of the Flight server over HTTP. Rows come as Arrow IPC, JSON lines, CSV or Parquet, as
they come from the device; an answer that ends in an error is broken off. Errors are JSON: `code`, `what`, `where`,
`hint`, and `text`, which is those in one line."""

FILE_REQUEST = {"type": "device.file", "device": "demo", "path": "/readings.csv"}
MOCK_REQUEST = {"type": "mock", "variant": "simple", "total_rows": 1000}
LISTING_REQUEST = {"type": "device.listing", "device": "demo"}

_ROWS = {
    "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
    "application/jsonl": {"schema": {"type": "string"}},
    "text/csv": {"schema": {"type": "string"}},
}
_ERROR = {
    "description": "What was wrong, and what to do next",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["code", "what", "text"],
                "properties": {name: {"type": "string"} for name in ("code", "what", "where", "hint", "text")},
            }
        }
    },
}


def _answers(status: str, description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {status: {"description": description, "content": content}, "default": _ERROR}


def _json_body(**examples: dict[str, Any]) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"required": True, "content": {"application/json": {"schema": {"type": "object"}, "examples": named}}}


STREAM: dict[str, Any] = {
    "requestBody": _json_body(file=FILE_REQUEST, table=MOCK_REQUEST, folder=LISTING_REQUEST),
    "responses": _answers("200", "The rows", _ROWS),
}
TICKET: dict[str, Any] = {
    "requestBody": _json_body(live={"type": "device.session", "device": "demo"}),
    "responses": _answers(
        "201", "The ticket, and how long it may wait", {"application/json": {"schema": {"type": "object"}}}
    ),
}
EXEC: dict[str, Any] = {
    "requestBody": _json_body(count={"code": "for i in range(3): print(i)"}),
    "responses": _answers("200", "The lines", {"text/plain": {"schema": {"type": "string"}}, **_ROWS}),
}
ACTION: dict[str, Any] = {
    "requestBody": _json_body(stat={"device": "demo", "path": "/readings.csv"}),
    "responses": _answers("200", "The results", {"application/json": {"schema": {"type": "object"}}}),
}
GET_FILE: dict[str, Any] = {
    "responses": _answers(
        "200",
        "A folder's entries, a file's bytes, or its rows",
        {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
            **_ROWS,
        },
    )
}
HEAD_FILE: dict[str, Any] = {"responses": {"200": {"description": "What GET says of it"}, "default": _ERROR}}
PUT_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {**_ROWS, "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    "responses": _answers("201", "Size and sha256", {"application/json": {"schema": {"type": "object"}}}),
}
