"""Flight's protobuf messages, as bytes, and the rows of an answer of `DoGet`.

Source: Flight.proto, and "Encapsulated message format" of Arrow's IPC specification. An answer is read as
`fastflight.client.stream` does: rows are counted, and checked against the server's last message.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from typing import Any

from nanoarrow import ArrayStream
from nanoarrow.ipc import InputStream

from fastflight.client import meaning
from fastflight.client.meaning import BESIDE, Note, is_note
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


class LightRows:
    """The rows of an answer of `DoGet`, whose `messages` are `FlightData`: batch by batch, as dictionaries.

    Each batch comes with the server's note on it, if there is one. `summary` is there after the last batch. Raises
    `ProtocolError` if the answer ends without the server's last message, or has another number of rows.
    """

    def __init__(self, messages: Generator[bytes, None, None], location: str) -> None:
        self._messages = messages
        # Cancels the call, if it still runs.
        self.close: Callable[[], None] = messages.close
        self._location = location
        self.summary: Note = {}

    def __iter__(self) -> Generator[tuple[list[dict[str, Any]], Note], None, None]:
        schema = b""
        count = 0
        last: dict[str, Any] | None = None
        for data in map(fields_of, self._messages):
            header = data.get(DATA_HEADER, b"")
            note: Note = {}
            if APP_METADATA in data:
                said = meaning.message(data[APP_METADATA], BESIDE, self._location)
                if is_note(said):
                    note = said
                else:
                    last = said
            if not schema:
                schema = _encapsulated(header, b"")
            elif header:
                rows = _rows(schema + _encapsulated(header, data.get(DATA_BODY, b"")), self._location)
                count += len(rows)
                yield rows, note
        if last is None or last.get("rows", count) != count:
            raise ProtocolError("the answer is incomplete: rows are missing", where=self._location)
        self.summary = last


def _rows(stream: bytes, location: str) -> list[dict[str, Any]]:
    """Return the rows of an IPC stream."""
    try:
        rows: list[dict[str, Any]] = ArrayStream(InputStream.from_readable(io.BytesIO(stream))).read_all().to_pylist()
    except (RuntimeError, ValueError) as error:
        raise ProtocolError("a batch of the server cannot be read", where=location) from error
    return rows


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
