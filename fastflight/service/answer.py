"""From a source's batches to what a client gets, whichever edge it asked. No I/O.

Each batch goes out in pieces of a size that every client takes; one that the source `Noted` has its note with its first
piece. A batch without rows and without a note is a sign of life: one every `HEARTBEAT_SECONDS` goes on. At the end
stands one without rows whose note is the trailer: rows, bytes, duration_seconds and the source's summary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.service.ledger import Stream
from fastflight.service.requests import Mode, Request
from fastflight.service.source import Noted, Summary
from fastflight.service.wire import encode

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# A source that has nothing to give says so with batches without rows, at least every 5 s. One that comes so long after
# the last message goes on to the client, so that it and the proxies on the way see that the stream is alive. A word
# that is a little early must go on, too, or the next would come after 10 s.
HEARTBEAT_SECONDS = 4.5

# A batch, and what is to be known at its place.
Piece = tuple[pa.RecordBatch, Mapping[str, Any] | None]


def described(schema: pa.Schema, request: Request, path: Mode) -> pa.Schema:
    """`schema` as it is sent, saying what was asked and what served it."""
    metadata = {**(schema.metadata or {}), b"fastflight.request": encode(request), b"fastflight.path": path.encode()}
    return plain(schema).with_metadata(metadata)


def plain(schema: pa.Schema) -> pa.Schema:
    """`schema` with dictionary columns as their values: Flight's generators cannot send them (apache/arrow#38480)."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


class Outgoing:
    """One answer on its way: `pieces` of each item that the source gives, then the `trailer`."""

    def __init__(self, schema: pa.Schema, stream: Stream) -> None:
        """`schema` is the `described` one. What goes out is counted in `stream`."""
        self._schema = schema
        self._stream = stream
        self._sent = time.monotonic()
        # The stream may count what comes, too.
        self._rows = 0
        self._bytes = 0
        # Measuring takes 2 us a column, so a batch that a source gives again is not measured again.
        self._measured: pa.RecordBatch | None = None
        self._size = 0

    def pieces(self, item: pa.RecordBatch | Noted) -> Iterator[Piece]:
        """What goes out of a batch. Raises `Stopped` once nobody wants it."""
        self._stream.passing()
        batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
        now = time.monotonic()
        if not batch.num_rows and note is None and now - self._sent < HEARTBEAT_SECONDS:
            return
        self._sent = now
        if not batch.schema.equals(self._schema):
            batch = _conformed(batch, self._schema)
        size = self._size_of(batch)
        self._rows += batch.num_rows
        self._bytes += size
        self._stream.count(batch.num_rows, size)
        for piece in split(batch):
            yield piece, note
            note = None

    def trailer(self, summary: Summary) -> Piece:
        """What stands at the end."""
        told = {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }
        return pa.RecordBatch.from_pylist([], schema=self._schema), told

    def _size_of(self, batch: pa.RecordBatch) -> int:
        if batch is not self._measured:
            self._measured, self._size = batch, batch.nbytes
        return self._size


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most `MAX_MESSAGE_BYTES`; a single row may be larger."""
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= MAX_MESSAGE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half))
    yield from split(batch.slice(half))


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with dictionary columns as the plain one that is sent."""
    if batch.schema.names != schema.names:
        raise DataError("the source gave a batch with other columns than its schema has")
    try:
        return batch.cast(schema)
    except pa.ArrowException as error:
        raise DataError("the source gave a batch that does not fit its schema") from error
