"""The part of the OpenAPI description that FastAPI cannot derive from the routes.

Each route lists its own answers, and the error statuses that a client may want to tell apart. `default` describes all
other errors. Tests send all examples, and requests that the schemas allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflight.gateway.content.file_answers import ANY_TYPE, FILE_TYPES
from fastflight.gateway.content.formats import MEDIA_TYPES, ROW_FORMATS
from fastflight.service.requests import TEXT_KEYS, DeviceExec, DeviceFile, DeviceSession, Recording, Request

DESCRIPTION = """The requests of the Flight server over HTTP. Rows are sent as Arrow IPC, JSON lines, CSV or Parquet, as
they arrive from the device. If an error ends an answer that has begun, the connection closes before the end of its
body. Errors are JSON: `code`, `what`, `where`, `hint`, and `text`, which holds all of them in one line."""

FILE_REQUEST = {"type": "device.file", "device": "demo", "path": "/readings.csv"}
LISTING_REQUEST = {"type": "device.listing", "device": "demo"}
READABLE = ("device.file", "device.listing", "device.tree", "device.exec", "device.session", "fleet.file", "recording")

Described = dict[str, Any]

JSON_ = "application/json"
TEXT: Described = {"type": "string"}
BYTES: Described = {"type": "string", "format": "binary"}
ANSWERS = {
    304: "The client has this version",
    400: "The request is wrong; `where` names the wrong part",
    401: "The request is not authenticated, or its credentials are wrong",
    403: "The caller may not do this, or a page of another origin sent the request",
    404: "Nothing has this name, or nothing that the caller may see",
    406: "The rows are not available in any of the accepted formats",
    408: "The content did not come in time",
    409: "The existing file or folder does not allow this",
    412: "The file is not the version that the condition names",
    413: "The content is too large",
    415: "Content of this type or coding is not supported",
    416: "The range is beyond the end of the file",
    421: "The Host header is not a name of this computer",
    422: "Bytes do not fit their format, or code on the board raised",
    500: "An unexpected error: the server's log has details under the number in the text",
    502: "The line or the board failed",
    503: "Busy, no room, or shutting down; `Retry-After` says when to ask again",
    504: "The board did not answer in time",
    507: "No space is left on the board or on the server's disk",
}
# Statuses that every route may answer with.
COMMON = (400, 401, 403, 421, 500, 503)
# Additional statuses of routes that talk to a board.
OF_A_BOARD = (404, 502, 504)

ERROR_CONTENT: Described = {
    JSON_: {
        "schema": {
            "type": "object",
            "required": ["code", "what", "text"],
            "properties": dict.fromkeys(("code", "what", "where", "hint", "text"), TEXT),
        }
    }
}
DEFAULT: dict[int | str, Described] = {
    "default": {"description": "An error: what is wrong, and what to do next", "content": ERROR_CONTENT}
}
_ROWS = {media: {"schema": TEXT if "text" in media or "json" in media else BYTES} for media in MEDIA_TYPES}
_OBJECT = {JSON_: {"schema": {"type": "object"}}}


def _answers(status: int, description: str, content: Mapping[str, Any], *others: int) -> Described:
    answers: Described = {str(status): {"description": description, **({"content": content} if content else {})}}
    for other in sorted({*COMMON, *others}):
        answers[str(other)] = {"description": ANSWERS[other], **({} if other == 304 else {"content": ERROR_CONTENT})}
    return {"responses": {**answers, **DEFAULT}}


def _json_body(schema: Described, required: bool = True, **examples: Described) -> Described:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": required, "content": {JSON_: {"schema": schema, "examples": named}}}}


def _parameters(place: str, **schemas: Described) -> list[Described]:
    """Describe parameters in a `query` or `header`."""
    return [
        {"name": name.replace("_", "-") if place == "header" else name, "in": place, "schema": schema}
        for name, schema in schemas.items()
    ]


def _keys(model: type[Request], *keys: str, **renamed: str) -> list[Described]:
    """Describe keys of a request in a query, under their own names or as `renamed`."""
    properties = model.model_json_schema()["properties"]
    names = {**{key: key for key in keys}, **renamed}
    return _parameters("query", **{name: _in_query(properties[key]) for name, key in names.items()})


def _in_query(schema: Described) -> Described:
    """Return the schema of a key as text in a query: lists are written with commas, and null by leaving it out."""
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    kinds = [TEXT if each.get("type") == "array" else each for each in kinds]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _one_of(*names: str) -> Described:
    return {"type": "string", "enum": list(names)}


FORMULAS = _one_of("escape")
REQUEST: Described = {"type": "object", "required": ["type"], "properties": {"type": _one_of(*READABLE)}}
OF_A_FILE = _keys(
    DeviceFile, "mode", "on_error", "infer", "sample_rows", *TEXT_KEYS, "transfer", "deflate", file_format="format"
)
# Of the content of a request that runs code; its path has the device.
EXEC_KEYS = ("code", "interrupt", "timeout")
CONDITIONS = {"If_Match": TEXT, "If_None_Match": TEXT}

STREAM: Described = {
    **_json_body(REQUEST, file=FILE_REQUEST, folder=LISTING_REQUEST),
    "parameters": _parameters("query", format=_one_of("arrow", "jsonl", "csv", "lines"), formulas=FORMULAS),
    **_answers(200, "The rows", _ROWS, *OF_A_BOARD, 406, 408, 409, 413, 415, 422),
}
SQL: Described = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_: {
                "schema": {
                    "type": "object",
                    "required": ["query"],
                    "properties": {"query": TEXT, "parameters": {"type": "array", "items": {"type": "number"}}},
                },
                "examples": {
                    "parameters": {"value": {"query": "select ?::int as n", "parameters": [1]}},
                },
            },
            "text/plain": {"schema": TEXT, "examples": {"query": {"value": "select 1 as n"}}},
        },
    },
    "parameters": _parameters("query", format=_one_of(*ROW_FORMATS), formulas=FORMULAS),
    **_answers(200, "The rows", _ROWS, *OF_A_BOARD, 406, 408, 409, 413, 415, 422),
}
TICKET: Described = {
    **_json_body(REQUEST, required=False, live={"type": "device.session", "device": "demo"}),
    # Only tickets for repl have content.
    "parameters": [{"name": "for", "in": "query", "schema": _one_of("repl", "fleet", "tcp", "plotjuggler")}],
    **_answers(201, "The ticket, and for how many seconds it is valid", _OBJECT, 404, 408, 413, 415),
}
DEVICE: Described = _answers(200, "The device", _OBJECT, 404)
INFO: Described = _answers(200, "What the board reports about itself", _OBJECT, *OF_A_BOARD)
EXEC: Described = {
    **_json_body(
        {
            "type": "object",
            "required": ["code"],
            "properties": {key: DeviceExec.model_json_schema()["properties"][key] for key in EXEC_KEYS},
        },
        count={"code": "for i in range(3): print(i)"},
    ),
    "parameters": _parameters("query", format=_one_of("lines", "jsonl", "csv", "arrow"), formulas=FORMULAS),
    **_answers(200, "The lines", _ROWS, *OF_A_BOARD, 406, 408, 413, 415, 422),
}
ACTION: Described = {
    **_json_body({"type": "object"}, stat={"device": "demo", "path": "/readings.csv"}),
    **_answers(200, "The results", _OBJECT, *OF_A_BOARD, 408, 409, 413, 415, 422, 507),
}
RECORDING: Described = {
    "parameters": [
        *_parameters("query", **{"as": _one_of(*ROW_FORMATS)}, formulas=FORMULAS),
        *_keys(Recording, "from_seq", "to_seq", "since_seconds", "limit_rows"),
    ],
    **_answers(200, "The rows", _ROWS, 404, 406, 422),
}
LIVE_ROWS: Described = {
    "parameters": [
        *_parameters("query", **{"as": _one_of(*ROW_FORMATS)}, formulas=FORMULAS, seconds={"type": "number"}),
        *_keys(DeviceSession, "columns", "limit_rows", "follow"),
    ],
    **_answers(200, "The rows", _ROWS, 404, 406, 422),
}
GET_FILE: Described = {
    "parameters": [
        *_parameters("query", format=_one_of(*ROW_FORMATS), formulas=FORMULAS),
        *_keys(DeviceFile, "columns", "batch_rows"),
        *OF_A_FILE,
        *_parameters("header", **CONDITIONS, Range=TEXT, If_Range=TEXT),
    ],
    **_answers(
        200,
        "A folder's entries, a file's bytes, or its rows",
        {**_OBJECT, **_ROWS, **{media: {"schema": BYTES} for media in (ANY_TYPE, *FILE_TYPES.values())}},
        *OF_A_BOARD,
        *(304, 406, 409, 412, 416, 422),
    ),
}
GET_FILE["responses"]["206"] = {"description": "A part of the file", "content": GET_FILE["responses"]["200"]["content"]}
HEAD_FILE: Described = {
    "parameters": _parameters("header", **CONDITIONS),
    "responses": {
        status: {"description": each["description"]}
        for status, each in GET_FILE["responses"].items()
        if status != "206"
    },
}
PUT_FILE: Described = {
    "requestBody": {
        "required": False,  # a file may be empty
        "content": {
            **{media: {"schema": BYTES} for media in _ROWS if "parquet" not in media and "plain" not in media},
            ANY_TYPE: {"schema": BYTES},
        },
    },
    "parameters": [*_keys(DeviceFile, "interrupt"), *OF_A_FILE, *_parameters("header", **CONDITIONS)],
    **_answers(201, "Size and sha256", _OBJECT, *OF_A_BOARD, 409, 412, 413, 415, 422, 507),
}
DELETE_FILE: Described = {
    "parameters": [*_keys(DeviceFile, "interrupt"), *_parameters("header", **CONDITIONS)],
    **_answers(204, "The file or folder is removed", {}, *OF_A_BOARD, 409, 412),
}

STATE: Described = _answers(200, "The present state", _OBJECT, 304)
CLUSTER: Described = _answers(200, "Servers, owners of devices, and copies in NATS", _OBJECT, 304, 404, 504)
METRICS: Described = _answers(200, "Metrics for Prometheus", {"text/plain": {"schema": TEXT}}, 304)
