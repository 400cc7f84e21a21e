"""Reads, writes and removes files of devices over HTTP, and lists folders.

GET answers with the bytes of a file and its size, or with a part for `Range`, or with its rows for `format` or
`Accept`. PUT writes a file under another name, verifies it and renames it: a broken upload leaves the old file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa
from fastapi import Request
from starlette.responses import JSONResponse, Response

from fastflight.access.identity import Identity
from fastflight.errors import RequestError
from fastflight.gateway.asgi import CALLER
from fastflight.gateway.backend import Backend
from fastflight.gateway.content.conditions import Conditions
from fastflight.gateway.content.file_answers import BytesAnswer, FileAnswer, ListingAnswer
from fastflight.gateway.content.formats import ROW_FORMATS, BodyEncoder, choose_format, encoder_of
from fastflight.gateway.content.streaming import while_connected
from fastflight.gateway.content.uploads import Content, UploadedRows, format_of_content
from fastflight.gateway.errors import HttpRefusal
from fastflight.service.requests import TEXT_KEYS, DeviceFile
from fastflight.service.wire import format_value
from fastflight.tables import Layout, TextOptions, format_of

# Keys that a query may not have: the path gives them, or the header Range does.
PLACED = ("type", "device", "path", "name")
IN_HEADERS = {
    "offset": "Range",
    "limit": "Range",
    "describe": "Range",
    "if_match": "If-Match",
    "if_none_match": "If-None-Match",
}
STOP_HINT = 'Stop it with POST /actions/device.exec {"device": ..., "code": "", "interrupt": true}, or use POST /stream'
# Keys whose values are separated by commas.
LISTS = ("columns", "null_values")


class Files:
    """The handlers of `/devices/{device}/files/{path}`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, request: Request, device: str, path: str) -> Response:
        """Return a folder's entries as JSON, a file's bytes, or, with `format` or `Accept`, its rows."""
        place = {"device": device, "path": f"/{_utf8_path(request, path)}"}
        caller: Identity = request.scope[CALLER]
        query = dict(request.query_params)
        row_format, formulas = query.pop("format", None), query.pop("formulas", None)
        accept = request.headers.get("accept", "")
        rows = row_format is not None or (accept and "*/*" not in accept)

        def choose() -> Callable[[pa.Schema], BodyEncoder]:
            return encoder_of(choose_format(row_format, accept, ROW_FORMATS) if rows else "raw", formulas)

        if row_format is not None or formulas is not None:
            choose()  # refuses unknown values before the board is asked
        if _flag(query, "interrupt"):
            raise RequestError("a GET cannot interrupt a program", where="interrupt", hint=STOP_HINT)
        fields = {"type": "device.file", **place, **keys_of(query)}
        self._backend.make_request(fields, strict=False)  # also checks keys that only rows use
        listing = ListingAnswer(self._backend, caller, place)
        if rows:
            return FileAnswer(fields, listing, lambda schema: choose()(schema))
        conditions = Conditions(request.method, lambda name: ", ".join(request.headers.getlist(name)))
        return BytesAnswer(fields, listing, conditions)

    async def put(self, request: Request, device: str, path: str) -> Response:
        """Write a file; return its `bytes` and `sha256` as JSON once it is in place."""
        place = {"device": device, "path": f"/{_utf8_path(request, path)}"}
        if "content-range" in request.headers:  # RFC 9110, 14.4: a part would replace the whole file
            raise HttpRefusal(
                400,
                "a part of a file cannot be put",
                where="Content-Range",
                hint="Send the whole file (curl: without -C), or resume with fastflight put",
            )
        query = dict(request.query_params)
        keys = keys_of(query)
        target = declared = keys.pop("format", None) or format_of(place["path"])
        source_format = format_of_content(request.headers.get("content-type", ""))
        if source_format in ("raw", target):  # the bytes are stored unchanged
            target = source_format = "raw"
        content = Content(request.receive)
        on_error = keys.pop("on_error", "fail")
        if on_error not in ("skip", "fail"):
            raise RequestError(f"{format_value(on_error)} is not allowed", where="on_error", hint="Known: fail, skip")
        losses: Literal["skip", "lossless"] = "skip" if on_error == "skip" else "lossless"  # a note stops no upload
        described = self._backend.make_request(
            {"type": "device.file", **place, **keys, "format": declared}, strict=False
        )
        assert isinstance(described, DeviceFile)
        text = TextOptions(**{key: getattr(described, key) for key in TEXT_KEYS})
        layout = Layout(
            source_format, on_error=losses, infer=described.infer, sample_rows=described.sample_rows, text=text
        )
        conditions = _conditions(request)
        upload = self._backend.make_request(
            {"type": "device.file", **place, **keys, **conditions, "format": target}, strict=False
        )
        caller: Identity = request.scope[CALLER]
        self._backend.permit(upload, "write", caller)  # before its content is read
        async with UploadedRows(content, layout) as rows, while_connected(request.receive, content.ended):
            await rows.begin()
            written = await self._backend.write(upload, rows.schema, rows.batches(), caller=caller)
        return JSONResponse({**place, **written, **(rows.rejected if source_format != "raw" else {})}, 201)

    async def delete(self, request: Request, device: str, path: str) -> Response:
        """Remove a file or an empty folder."""
        place = {"device": device, "path": f"/{_utf8_path(request, path)}"}
        interrupt = _flag(dict(request.query_params), "interrupt")
        body = json.dumps({**place, **_conditions(request), "interrupt": interrupt}).encode()
        await self._backend.act("file.remove", body, request.scope[CALLER])
        return Response(status_code=204)


def _conditions(request: Request) -> dict[str, str]:
    """Return the keys for the conditions of a request that changes a file."""
    return {
        key: tags
        for key, name in (("if_match", "if-match"), ("if_none_match", "if-none-match"))
        if (tags := ", ".join(request.headers.getlist(name)))
    }


def keys_of(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the request keys in a query. `file_format` is the format of the file; commas separate `LISTS`.

    Raises `RequestError` for keys that the path gives: the path must always show what a request is for.
    """
    keys: dict[str, Any] = {}
    for name, text in query.items():
        if name in PLACED:
            raise RequestError("the path gives this key", where=name, hint="Leave it out of the query")
        if name in IN_HEADERS:
            raise RequestError("not a key of a query", where=name, hint=f"Use the header {IN_HEADERS[name]}")
        if name in LISTS:
            keys[name] = text.split(",")
        elif name == "file_format":
            keys["format"] = text
        else:
            keys[name] = text  # the request's model converts it
    return keys


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.pop(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise RequestError(f"{format_value(text)} is not allowed", where=name, hint="Known: true, false")
    return text in ("true", "1")


def _utf8_path(request: Request, path: str) -> str:
    """Return `path`, which the server has decoded; raise `RequestError` if it was not UTF-8."""
    if "\ufffd" in path and b"%EF%BF%BD" not in request.scope.get("raw_path", b"").upper():
        raise RequestError("the path is not UTF-8", where="path", hint="Encode it as UTF-8 before %XX")
    return path
