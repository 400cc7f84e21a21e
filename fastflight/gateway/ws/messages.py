"""Rows as the messages of a WebSocket: Arrow in binary messages, or JSON in text messages.

The binary messages are the parts of an Arrow IPC stream, in order: the schema, each record batch and, at a good end,
the end-of-stream mark. Joined, they are the stream. As JSON, the first message has the columns, `{"columns": [...],
"path": ...}`, and each batch is `{"rows": [{...}]}` with an object for each row. Values are as in JSON lines, except
bytes, which are base64. Notes, trailer and errors are no part of either: they are messages of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

import pyarrow as pa

from fastflight.gateway.content.formats import END_OF_STREAM
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.channel import MAX_MESSAGE_BYTES
from fastflight.runtime.outgoing import split
from fastflight.tables import Layout, open_writer

Message: TypeAlias = bytes | memoryview | str


class MessageEncoder(Protocol):
    """Encodes one answer: call `begin`, `encode` for each batch, then `finish`."""

    # Whether encoding a batch takes so long that it must not run on the loop.
    slow: bool

    def begin(self) -> Message: ...

    def encode(self, batch: pa.RecordBatch) -> Iterator[Message]: ...

    def finish(self) -> bytes | None: ...


class ArrowMessages:
    """Encodes an Arrow IPC stream, with a message for each part."""

    slow = False

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def begin(self) -> bytes:
        return self._schema.serialize().to_pybytes()  # type: ignore[no-any-return]

    def encode(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        for piece in split(batch, MAX_MESSAGE_BYTES):
            data = memoryview(piece.serialize())
            if len(data) > MAX_MESSAGE_BYTES:
                raise _too_big(len(data))
            yield data

    def finish(self) -> bytes:
        return END_OF_STREAM


class JsonMessages:
    """Encodes a JSON object for each batch."""

    slow = True

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = open_writer(Layout("jsonl", bytes_as="base64"), schema)

    def begin(self) -> str:
        columns = [{"name": field.name, "type": str(field.type)} for field in self._schema]
        path = (self._schema.metadata or {}).get(b"fastflight.path", b"").decode()
        return json.dumps({"columns": columns, "path": path}, ensure_ascii=False)

    def encode(self, batch: pa.RecordBatch) -> Iterator[str]:
        lines = self._writer.encode(batch).splitlines()
        yield from _row_messages(lines)

    def finish(self) -> None:
        return None


MESSAGES: Mapping[str, Callable[[pa.Schema], MessageEncoder]] = {"arrow": ArrowMessages, "json": JsonMessages}


def _row_messages(lines: list[bytes]) -> Iterator[str]:
    """Yield `{"rows": [...]}`; if it is too big, split the rows in halves until each message fits."""
    text = b'{"rows":[' + b",".join(lines) + b"]}"
    if len(text) <= MAX_MESSAGE_BYTES:
        yield text.decode()
    elif len(lines) <= 1:
        raise _too_big(len(text))
    else:
        half = len(lines) // 2
        yield from _row_messages(lines[:half])
        yield from _row_messages(lines[half:])


def _too_big(size: int) -> HttpRefusal:
    return HttpRefusal(
        413,
        f"a row of {size} bytes does not fit into a message of at most {MAX_MESSAGE_BYTES}",
        hint="Use POST /stream",
    )
