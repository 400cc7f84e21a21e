"""A maker of broken Arrow: frames of Flight and messages of IPC streams, made good and then changed.

Flight frames go out through gRPC as bytes (Flight.proto, FlightData), since no Arrow client would send them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

CONTINUATION = b"\xff\xff\xff\xff"
END = CONTINUATION + bytes(4)


@dataclass(frozen=True, slots=True)
class Part:
    """A message: its flatbuffer and its body."""

    header: bytes
    body: bytes = b""

    @property
    def framed(self) -> bytes:
        """As it stands in an IPC stream."""
        return CONTINUATION + struct.pack("<i", len(self.header)) + self.header + self.body

    def patched(self, old: int, new: int, *, body: bool = False) -> Part:
        """Every int64 that is `old` as `new`: in the header, or in the body."""
        before, after = struct.pack("<q", old), struct.pack("<q", new)
        text = self.body if body else self.header
        assert before in text
        text = text.replace(before, after)
        return Part(self.header, text) if body else Part(text, self.body)


def parts(*columns: pa.Array, names: list[str] | None = None, metadata: Any = None, **options: Any) -> list[Part]:
    """The messages of one batch: its schema, its dictionaries, its rows."""
    named = names or [f"c{index}" for index in range(len(columns))]
    fields = [pa.field(name, column.type) for name, column in zip(named, columns, strict=True)]
    schema = pa.schema(fields, metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(pa.record_batch(list(columns), schema=schema))
    return list(_messages(sink.getvalue().to_pybytes()))


def _messages(data: bytes) -> Iterator[Part]:
    at = 0
    while (size := struct.unpack_from("<i", data, at + 4)[0]) != 0:
        message = pa.ipc.read_message(pa.BufferReader(data[at:]))
        body = message.body.to_pybytes() if message.body is not None else b""
        yield Part(data[at + 8 : at + 8 + size], body)
        at += 8 + size + len(body)


def stream(*messages: Part) -> bytes:
    """An IPC stream."""
    return b"".join(message.framed for message in messages) + END


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def frame(part: Part | None = None, *, command: bytes | None = None, metadata: bytes = b"") -> bytes:
    """A FlightData: with a `command` the first of its stream."""
    out = b"" if command is None else _field(1, b"\x08\x02" + _field(2, command))
    if part is not None:
        out += _field(2, part.header)
    if metadata:
        out += _field(3, metadata)
    return out + (_field(1000, part.body) if part is not None and part.body else b"")


def raw_array(type_: pa.DataType, length: int, *buffers: bytes | None) -> pa.Array:
    """An array of buffers that are believed."""
    return pa.Array.from_buffers(type_, length, [None if data is None else pa.py_buffer(data) for data in buffers])


def int32s(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def int64s(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)
