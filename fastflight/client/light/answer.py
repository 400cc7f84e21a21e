"""Flight's protobuf messages, as bytes, and the rows of an answer of `DoGet`.

Source: Flight.proto, and "Encapsulated message format" of Arrow's IPC specification. An answer is read as
`fastflight.client.stream` does: rows are counted, and checked against the server's last message.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from nanoarrow import ArrayStream
from nanoarrow.ipc import InputStream

from fastflight.client import meaning
from fastflight.errors import ProtocolError

# Fields of Flight's messages. Action: type, body. Result: body. Ticket: ticket. FlightData: the other three.
ACTION_TYPE, ACTION_BODY, RESULT_BODY, TICKET = 1, 2, 1, 1
DATA_HEADER, APP_METADATA, DATA_BODY = 2, 3, 1000
# Protobuf's type of fields with a length; Flight's messages here have no others.
LENGTH_DELIMITED = 2
# Before the metadata of an IPC message.
CONTINUATION = b"\xff\xff\xff\xff"
ALIGNMENT = 8


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a protobuf field of bytes."""
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(content)) + content


def fields_of(message: bytes) -> dict[int, bytes]:
    """Decode a protobuf message that has only fields of bytes. Raises `ProtocolError` if it is none."""
    fields: dict[int, bytes] = {}
    at = 0
    with meaning.understood("an answer"):
        while at < len(message):
            key, at = _number(message, at)
            size, at = _number(message, at)
            if key & 7 != LENGTH_DELIMITED or at + size > len(message):
                raise ValueError("not a field of bytes")
            fields[key >> 3] = message[at : at + size]
            at += size
    return fields


def rows_of(messages: Iterable[bytes], location: str) -> Generator[dict[str, Any], None, None]:
    """Yield the rows of an answer of `DoGet`, whose messages are `FlightData`, as dictionaries.

    Raises `ProtocolError` if the answer ends without the server's last message, or has another number of rows.
    """
    schema = b""
    count = 0
    summary: dict[str, Any] | None = None
    for data in map(fields_of, messages):
        header = data.get(DATA_HEADER, b"")
        if APP_METADATA in data:
            summary = meaning.message(data[APP_METADATA], "what the server says of its rows", location)
        if not schema:
            schema = _encapsulated(header, b"")
        elif header:
            for row in _rows(schema + _encapsulated(header, data.get(DATA_BODY, b"")), location):
                count += 1
                yield row
    if summary is None or summary.get("rows", count) != count:
        raise ProtocolError("the answer is incomplete: rows are missing", where=location)


def _rows(stream: bytes, location: str) -> Iterator[dict[str, Any]]:
    """Return the rows of an IPC stream."""
    try:
        rows: list[dict[str, Any]] = ArrayStream(InputStream.from_readable(io.BytesIO(stream))).read_all().to_pylist()
    except (RuntimeError, ValueError) as error:
        raise ProtocolError("a batch of the server cannot be read", where=location) from error
    return iter(rows)


def _encapsulated(header: bytes, body: bytes) -> bytes:
    padded = header + bytes(-len(header) % ALIGNMENT)
    return CONTINUATION + len(padded).to_bytes(4, "little") + padded + body


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at `at`. Return it, and the position after it."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
