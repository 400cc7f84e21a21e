"""The content of a record's body: a batch as Arrow IPC messages, or the state of a log.

A batch is stored as its encapsulated message. If it has dictionary columns, the messages of its dictionaries come
first, so that each record can be read without any other. A state is stored as two numbers, the log's name, and the
message of its schema.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.errors import DataError, RequestError

# The most bytes of a batch. Recorders append far less.
MAX_BODY_BYTES = 64 * 1024 * 1024
TIME_COLUMN = "time"
TIME_TYPE = pa.timestamp("us", "UTC")
# A log is named after a device, in a cluster also after the server that recorded it.
MAX_NAME_BYTES = 384
# Up to this many rows a Python loop is faster than a call into Arrow (1 us against 8 us for one row).
FEW_ROWS = 100

_STATE = struct.Struct("<QQI")


class LogState(NamedTuple):
    """The state of a log as a segment stores it: numbers below `first` are trimmed, `next` is the next number."""

    first: int
    next: int
    name: str
    schema: bytes

    @property
    def number(self) -> int:
        return log_number(self.name)


def log_number(name: str) -> int:
    """Return the number that identifies a log in records. It depends only on the name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def encode_state(state: LogState) -> bytes:
    name = state.name.encode()
    return _STATE.pack(state.first, state.next, len(name)) + name + state.schema


def decode_state(body: bytes | memoryview) -> LogState:
    """Return the state in a body whose checksum was verified."""
    first, next_, length = _STATE.unpack_from(body)
    at = _STATE.size + length
    return LogState(first, next_, str(body[_STATE.size : at], "utf-8"), bytes(body[at:]))


# The defaults of Arrow, which otherwise looks for them in the environment for each batch.
_OPTIONS = pa.ipc.IpcWriteOptions()


class Codec:
    """Converts batches of one schema to bodies and back. Raises `RequestError` for a schema without a time column."""

    def __init__(self, schema: pa.Schema) -> None:
        index = schema.get_field_index(TIME_COLUMN)
        if index < 0 or schema.field(index).type != TIME_TYPE:
            raise RequestError(
                f"a log needs a column {TIME_COLUMN!r} of {TIME_TYPE}",
                where="schema",
                hint="Reads by time use this column",
            )
        self.schema = schema
        self._time = index
        self._prefix: bytes = schema.serialize().to_pybytes()
        self._dictionaries = any(_has_dictionary(field.type) for field in schema)

    @property
    def message(self) -> bytes:
        """The schema as an encapsulated message."""
        return self._prefix

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `DataError` if `batch` has another schema."""
        if not batch.schema.equals(self.schema):
            raise DataError("the batch has another schema than the log", hint=_difference(batch.schema, self.schema))

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """Return the body for `batch`. Raises `DataError` if it has another schema or is too long."""
        self.check(batch)
        if self._dictionaries:
            sink = pa.BufferOutputStream()
            writer = pa.ipc.new_stream(sink, self.schema, options=_OPTIONS)
            writer.write_batch(batch)
            body = memoryview(sink.getvalue())[len(self._prefix) :]
        else:
            body = memoryview(batch.serialize())
        if len(body) > MAX_BODY_BYTES:
            raise DataError(
                f"the batch has {len(body)} bytes", hint=f"At most {MAX_BODY_BYTES}: append it in smaller ones"
            )
        return body

    def decode(self, body: pa.Buffer) -> pa.RecordBatch:
        """Return the batch in a body whose checksum was verified. Without dictionaries its columns refer to `body`."""
        if self._dictionaries:
            return pa.ipc.open_stream(pa.py_buffer(self._prefix + body.to_pybytes())).read_next_batch()
        return pa.ipc.read_record_batch(body, self.schema)

    def decode_joined(self, bodies: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows of several bodies as one batch, with few calls to Arrow."""
        if len(bodies) == 1:
            return self.decode(pa.py_buffer(bodies[0]))
        rows = pa.ipc.open_stream(pa.py_buffer(b"".join([self._prefix, *bodies]))).read_all()
        (batch,) = rows.combine_chunks().to_batches()
        return batch

    def times(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return the earliest and the latest time in `batch`, in us UTC. Raises `DataError` if a time is null."""
        column = batch.column(self._time)
        if column.null_count:
            raise DataError("a row has no time", where=TIME_COLUMN)
        if len(column) > FEW_ROWS:
            ends = pc.min_max(column.view(pa.int64()))
            return ends["min"].as_py(), ends["max"].as_py()
        values = memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]
        return min(values), max(values)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _difference(actual: pa.Schema, expected: pa.Schema) -> str:
    for field in expected:
        index = actual.get_field_index(field.name)
        if index < 0:
            return f"Column {field.name!r} is missing"
        if not actual.field(index).equals(field):
            return f"Column {field.name!r} is {actual.field(index).type}, and should be {field.type}"
    return f"The columns should be {', '.join(expected.names)}"
