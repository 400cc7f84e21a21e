"""Formats of rows as the body of an HTTP answer: Arrow, JSON lines, CSV, Parquet, or lines of text.

`choose_format` takes the one of `?format=`, else that of the `Accept` header, else the route's default.

A `BodyEncoder` encodes each batch as it comes, and the error if the rows end in one. Arrow also carries notes and the
trailer, in the custom metadata of messages: a note of the source under `fastflight.note`, and the trailer under
`fastflight.trailer` in the last message, which has no rows. An Arrow stream that ends in an error has the error under
`fastflight.error` in its last message, and no end-of-stream mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError, RequestError, nearest
from fastflight.gateway.errors import HttpRefusal
from fastflight.service.source import Note
from fastflight.service.wire import format_value
from fastflight.tables import Layout, open_writer
from fastflight.tables.arrow import ByteSink
from fastflight.tables.bare import empty
from fastflight.tables.codec import RowWriter
from fastflight.tables.parquet import RowGroupWriter

NOTE, TRAILER, ERROR = b"fastflight.note", b"fastflight.trailer", b"fastflight.error"
# The last 8 bytes of an Arrow stream: a message of length 0.
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
CSV_TYPE = "text/csv; charset=utf-8"
# First characters that make a spreadsheet read text as a formula (OWASP, "CSV Injection"). An apostrophe marks text.
FORMULA = re.compile(r"^([=+\-@\t\r])")
ESCAPED = r"'\1"

# Media ranges of an `Accept` header that are read; browsers send a handful.
MAX_ACCEPTED = 32

Data = bytes | memoryview


class BodyEncoder(Protocol):
    """Encodes one answer: call `begin`, `encode` for each batch, then `finish` or `fail`. Each returns bytes."""

    # The content type of the answer.
    media_type: str
    # Whether encoding a batch takes so long that it must not run on the loop.
    slow: bool

    def begin(self) -> Data: ...

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        """Encode a batch, and its note if the format can carry it."""

    def finish(self, trailer: Note) -> Data: ...

    def fail(self, error: Mapping[str, Any]) -> Data:
        """Encode the error that ends the rows; no bytes if the format cannot carry it."""


class ArrowEncoder:
    """Encodes an Arrow IPC stream. Each message is serialized into a buffer of exactly its size."""

    media_type = "application/vnd.apache.arrow.stream"
    slow = False

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._head = schema.serialize()

    def begin(self) -> Data:
        return memoryview(self._head)

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        return memoryview(batch.serialize()) if note is None else self._with(batch, NOTE, note)

    def finish(self, trailer: Note) -> Data:
        return self._empty(TRAILER, trailer) + END_OF_STREAM

    def fail(self, error: Mapping[str, Any]) -> Data:
        return self._empty(ERROR, error)

    def _empty(self, key: bytes, content: Mapping[str, Any]) -> bytes:
        return bytes(self._with(empty(self._schema), key, content))

    def _with(self, batch: pa.RecordBatch, key: bytes, content: Mapping[str, Any]) -> Data:
        sink = pa.BufferOutputStream()
        writer = pa.ipc.new_stream(sink, self._schema)
        writer.write_batch(batch, custom_metadata={key: json.dumps(content, default=str).encode()})
        # The writer stays open: closing it would add the end-of-stream mark. The schema before the message is cut off.
        return memoryview(sink.getvalue())[self._head.size :]


class TextEncoder:
    """Encodes JSON lines or CSV, in the form in which files on devices are written."""

    slow = True

    def __init__(self, format_: str, media_type: str, schema: pa.Schema, *, escapes: bool = False) -> None:
        """`escapes`: escape text that a spreadsheet would read as a formula."""
        self.media_type = media_type
        self._says_errors = format_ == "jsonl"
        schema = schema.remove_metadata()
        self._escaped = pa.schema([f.with_name(FORMULA.sub(ESCAPED, f.name)) for f in schema]) if escapes else None
        layout = Layout(format_, bytes_as="base64")
        self._writer: RowWriter = open_writer(layout, self._escaped or schema)

    def begin(self) -> Data:
        return self._writer.begin()

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        if self._escaped is not None:
            batch = pa.record_batch([_without_formulas(column) for column in batch.columns], self._escaped)
        return self._writer.encode(batch)

    def finish(self, trailer: Note) -> Data:
        return self._writer.finish()

    def fail(self, error: Mapping[str, Any]) -> Data:
        return json.dumps({"error": error}, default=str).encode() + b"\n" if self._says_errors else b""


class LinesEncoder:
    """Encodes the column `text`, a line for each row. An error becomes a traceback or a line of text."""

    media_type = "text/plain; charset=utf-8"
    slow = False

    def __init__(self, schema: pa.Schema) -> None:
        if "text" not in schema.names:
            raise DataError("these rows have no column `text`", hint="Ask for jsonl, csv or arrow")

    def begin(self) -> Data:
        return b""

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        return "".join(f"{'' if line is None else line}\n" for line in batch.column("text").to_pylist()).encode()

    def finish(self, trailer: Note) -> Data:
        return b""

    def fail(self, error: Mapping[str, Any]) -> Data:
        return f"{error.get('traceback') or 'error: ' + str(error.get('text'))}\n".encode()


class ParquetEncoder:
    """Encodes a Parquet file. Bytes come out when a row group is complete."""

    media_type = "application/vnd.apache.parquet"
    slow = True

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = ByteSink()
        self._writer = RowGroupWriter(self._sink, schema.remove_metadata())

    def begin(self) -> Data:
        return self._sink.take()

    def encode(self, batch: pa.RecordBatch, note: Note | None) -> Data:
        self._writer.write(batch)
        return self._sink.take()

    def finish(self, trailer: Note) -> Data:
        self._writer.add_summary(trailer)
        self._writer.close()
        return self._sink.take()

    def fail(self, error: Mapping[str, Any]) -> Data:
        return b""


def _without_formulas(column: pa.Array) -> pa.Array:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column  # only text can be a formula
    return pc.replace_substring_regex(column, FORMULA.pattern, ESCAPED)


def encoder_of(format_: str, formulas: str | None) -> Callable[[pa.Schema], BodyEncoder]:
    """Return the function that makes an encoder of a format from a schema.

    `formulas` is the query's value: `escape`, or None to leave formulas as they are.
    """
    if formulas is None:
        return ENCODERS[format_]
    if formulas != "escape":
        raise RequestError(f"{format_value(formulas)} is not allowed", where="formulas", hint="Known: escape")
    if format_ != "csv":
        raise RequestError("formulas are escaped in CSV only", where="formulas", hint="Use format=csv, or leave it out")
    return lambda schema: TextEncoder("csv", CSV_TYPE, schema, escapes=True)


ENCODERS: Mapping[str, Callable[[pa.Schema], BodyEncoder]] = {
    "arrow": ArrowEncoder,
    "jsonl": lambda schema: TextEncoder("jsonl", "application/jsonl", schema),
    "csv": lambda schema: TextEncoder("csv", CSV_TYPE, schema),
    "parquet": ParquetEncoder,
    "lines": LinesEncoder,
}

# Formats in which the rows of a file, a recording or a query can be requested.
ROW_FORMATS = ("arrow", "jsonl", "csv", "parquet")
# The names of formats in `Accept` and `Content-Type`.
MEDIA_TYPES: Mapping[str, str] = {
    "application/vnd.apache.arrow.stream": "arrow",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/x-jsonlines": "jsonl",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "text/plain": "lines",
}


def choose_format(query: str | None, accept: str, offered: Sequence[str]) -> str:
    """Return one of the formats `offered`; the first one is the default.

    Raises `RequestError` for an unknown `query`, and `HttpRefusal` (406) if the client accepts none of them.
    """
    if query is not None:
        if query not in offered:
            raise RequestError(f"{query!r} is not a format here", where="format", hint=nearest(query, offered))
        return query
    ranges = _ranges(accept)
    if not ranges:
        return offered[0]
    best, weight = "", 0.0
    for name in offered:
        accepted_quality = max((quality for range_, quality in ranges if _fits(name, range_)), default=0.0)
        if accepted_quality > weight:
            best, weight = name, accepted_quality
    if not best:
        known = ", ".join(media for media, name in MEDIA_TYPES.items() if name in offered)
        raise HttpRefusal(406, f"the rows are not available as {accept[:80]!r}", where="Accept", hint=f"Known: {known}")
    return best


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(",")[:MAX_ACCEPTED]:
        range_, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if range_:
            found.append((range_, quality))
    return found


def _fits(name: str, range_: str) -> bool:
    if range_ == "*/*":
        return True
    kind, _, subtype = range_.partition("/")
    return any(
        media == range_ or (subtype == "*" and media.startswith(f"{kind}/"))
        for media, meant in MEDIA_TYPES.items()
        if meant == name
    )
