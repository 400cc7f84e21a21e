"""The files of devices over HTTP: folders, rows, bytes, and what is sent to be one.

A file is given as it is, with its size, unless rows are asked for; a part of it with `Range`. A written file appears
under its name when all of it is verified on the device; one that breaks off leaves the old one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from fastapi import Request
from starlette.responses import JSONResponse, Response

from fastflight.errors import DataError, RequestError
from fastflight.gateway.accepting import chosen
from fastflight.gateway.asgi import CALLER
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import Caller
from fastflight.gateway.formats import ENCODERS, Data
from fastflight.gateway.status import Refused
from fastflight.gateway.streaming import Streamed, while_connected
from fastflight.gateway.uploads import Content, Rows, format_of_content
from fastflight.service.answer import Note
from fastflight.service.wire import shown
from fastflight.tables import Layout, format_of

# What a file may be asked for as.
ROW_FORMATS = ("arrow", "jsonl", "csv", "parquet")
# Files are shown by no browser as pages of the gateway: their content is the board's. These are safe to name.
FILE_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/jsonl",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
ANY_TYPE = "application/octet-stream"
RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")
# Keys of a request that a query may hold, and how its text is read.
FLAGS = ("interrupt", "deflate")
# Of a number in a query: more than the largest that any key takes has.
MAX_DIGITS = 18
# What stands in the path.
PLACED = ("type", "device", "path", "name")
NUMBERS = ("batch_rows", "flush_ms", "limit_rows", "from_seq", "to_seq", "since_seconds")


class Files:
    """The handlers of `/devices/{device}/files/{path}`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, request: Request, device: str, path: str) -> Response:
        """A folder's entries as JSON, or a file: its bytes, or with `format` (or `Accept`) its rows."""
        place = {"device": device, "path": f"/{_decoded(request, path)}"}
        caller: Caller = request.scope[CALLER]
        query = dict(request.query_params)
        wanted = query.pop("format", None)
        interrupt = _flag(query, "interrupt")
        keys = keys_of(query)
        async with while_connected(request.receive):
            (entry,) = await self._backend.act("file.stat", _json({**place, "interrupt": interrupt}), caller)
            if entry["kind"] == "folder":
                entries = await self._entries({**place, "interrupt": interrupt}, caller)
                return JSONResponse({**place, "entries": entries})
        accept = request.headers.get("accept", "")
        if wanted is not None or (accept and "*/*" not in accept):
            format_ = chosen(wanted, accept, ROW_FORMATS)
            asked = {"type": "device.file", **place, "interrupt": interrupt, **keys}
            return Streamed(self._backend, self._backend.decode(_json(asked)), caller, ENCODERS[format_])
        return self._bytes(request, caller, place, int(entry["size"]), {"interrupt": interrupt, **keys})

    async def put(self, request: Request, device: str, path: str) -> Response:
        """Write a file; JSON with its `bytes` and `sha256` when it is there."""
        place = {"device": device, "path": f"/{_decoded(request, path)}"}
        if "content-range" in request.headers:  # RFC 9110, 14.4: it would make a part of the file the whole
            raise Refused(
                400,
                "a part of a file cannot be put",
                where="Content-Range",
                hint="Send the whole file (curl: without -C), or resume with fastflight put",
            )
        query = dict(request.query_params)
        keys = keys_of(query)
        target = keys.pop("format", None) or format_of(place["path"])
        given = format_of_content(request.headers.get("content-type", ""))
        if given in ("raw", target):  # bytes as they are
            target = given = "raw"
        content = Content(request.receive)
        on_error = keys.pop("on_error", "fail")
        if on_error not in ("skip", "fail"):
            raise RequestError(f"{shown(on_error)} is not allowed", where="on_error", hint="Known: fail, skip")
        rows = Rows(content, Layout(given, on_error=on_error))
        asked = self._backend.decode(_json({"type": "device.file", **place, **keys, "format": target}))
        caller: Caller = request.scope[CALLER]
        self._backend.permit(asked, "write", caller)  # before its content is read
        async with while_connected(request.receive, content.ended):
            await rows.begin()
            written = await self._backend.write(asked, rows.schema, rows.batches(), caller=caller)
        return JSONResponse({**place, **written, **(rows.rejected if given != "raw" else {})}, 201)

    async def delete(self, request: Request, device: str, path: str) -> Response:
        """Remove a file or an empty folder."""
        place = {"device": device, "path": f"/{_decoded(request, path)}"}
        interrupt = _flag(dict(request.query_params), "interrupt")
        await self._backend.act("file.remove", _json({**place, "interrupt": interrupt}), request.scope[CALLER])
        return Response(status_code=204)

    async def _entries(self, place: Mapping[str, Any], caller: Caller) -> list[dict[str, Any]]:
        asked = self._backend.decode(_json({"type": "device.listing", **place}))
        async with self._backend.read(asked, caller=caller) as answer:
            rows = [row async for batch, _ in answer.batches for row in batch.to_pylist()]
        return [{**row, "modified": row["modified"] and row["modified"].isoformat()} for row in rows]

    def _bytes(
        self, request: Request, caller: Caller, place: Mapping[str, str], size: int, keys: Mapping[str, Any]
    ) -> Response:
        name = place["path"].rpartition("/")[2]
        media_type = FILE_TYPES.get(name.rpartition(".")[2].lower(), ANY_TYPE)
        start, stop = _range(request.headers.get("range"), size)
        headers = {
            "content-length": str(stop - start),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "accept-ranges": "bytes",
        }
        status = 200
        if request.headers.get("range") and (start, stop) != (0, size):
            status, headers["content-range"] = 206, f"bytes {start}-{stop - 1}/{size}"
        asked = {"type": "device.file", **place, **keys, "format": "raw", "offset": start}
        return Streamed(
            self._backend,
            self._backend.decode(_json(asked)),
            caller,
            lambda schema: BytesEncoder(media_type, stop - start, stop == size),
            headers,
            status,
        )


class BytesEncoder:
    """The bytes of raw rows, `limit` of them; `to_end`: these are all, and the rows are read to their end."""

    slow = False

    def __init__(self, media_type: str, limit: int, to_end: bool) -> None:
        self.media_type = media_type
        self._left = limit
        self._to_end = to_end

    @property
    def enough(self) -> bool:
        return not self._left and not self._to_end

    def begin(self) -> Data:
        return b""

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        data = b"".join(batch.column("data").to_pylist())[: self._left]
        self._left -= len(data)
        return data

    def finish(self, trailer: Note) -> Data:
        if self._left:
            raise DataError(f"the file has become {self._left} bytes shorter", hint="Ask again")
        return b""

    def fail(self, error: Mapping[str, Any]) -> Data:
        return b""


def keys_of(query: Mapping[str, str]) -> dict[str, Any]:
    """The request's keys in a query. `file_format` is the file's own format, `columns` are divided by commas.

    `RequestError` for what the path has said already: who looks at a path must see what is asked for.
    """
    keys: dict[str, Any] = {}
    for name, text in query.items():
        if name in PLACED:
            raise RequestError("it is in the path", where=name, hint="Leave it out of the query")
        if name in FLAGS:
            keys[name] = _flag({name: text}, name)
        elif name in NUMBERS and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
            keys[name] = int(text)
        elif name == "columns":
            keys[name] = text.split(",")
        elif name == "file_format":
            keys["format"] = text
        else:
            keys[name] = text  # the request's model says what is wrong with it
    return keys


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.pop(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise RequestError(f"{shown(text)} is not allowed", where=name, hint="Known: true, false")
    return text in ("true", "1")


def _range(text: str | None, size: int) -> tuple[int, int]:
    """The bytes that are asked for, from and up to. What is not one range is not heeded, as HTTP wants it."""
    match = RANGE.fullmatch(text or "")
    if match is None:
        return 0, size
    start, last = int(match[1]), int(match[2] or size)
    if start >= size or last < start:
        raise Refused(416, f"the file has {size} bytes", where="Range", hint="Ask for bytes=START-END below that")
    return start, min(last + 1, size)


def _decoded(request: Request, path: str) -> str:
    """`path`, which was decoded once; refused where it was not UTF-8."""
    if "\ufffd" in path and b"%EF%BF%BD" not in request.scope.get("raw_path", b"").upper():
        raise RequestError("the path is not UTF-8", where="path", hint="Encode it as UTF-8 before %XX")
    return path


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()
