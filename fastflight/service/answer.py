"""From a source's batches to what a client gets, whichever edge it asked. No I/O.

Each batch goes out in pieces of a size that every client takes; one that the source `Noted` has its note with its first
piece. A batch without rows and without a note is a sign of life: one every `HEARTBEAT_SECONDS` goes on. When all have
gone, there is a trailer: rows, bytes, duration_seconds and the source's summary.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.service.ledger import Stream
from fastflight.service.requests import Mode, Request
from fastflight.service.source import AsyncReading, Noted, Reading, Summary
from fastflight.service.wire import encode

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# A source that has nothing to give says so with batches without rows, at least every 5 s. One that comes so long after
# the last message goes on to the client, so that it and the proxies on the way see that the stream is alive. A word
# that is a little early must go on, too, or the next would come after 10 s.
HEARTBEAT_SECONDS = 4.5

# A batch, and what is to be known at its place.
Note = Mapping[str, Any]
Piece = tuple[pa.RecordBatch, Note | None]


def described(schema: pa.Schema, request: Request, path: Mode) -> pa.Schema:
    """`schema` as it is sent, saying what was asked and what served it."""
    metadata = {**(schema.metadata or {}), b"fastflight.request": encode(request), b"fastflight.path": path.encode()}
    return plain(schema).with_metadata(metadata)


def plain(schema: pa.Schema) -> pa.Schema:
    """`schema` with dictionary columns as their values: Flight's generators cannot send them (apache/arrow#38480)."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


async def async_items(
    read: Callable[[], Awaitable[AsyncReading]], request: Request
) -> AsyncIterator[AsyncReading | Noted | pa.RecordBatch]:
    """The reading, then its batches: opened and iterated by one task, so that one cancellation ends both."""
    reading = await read()
    try:
        yield replace(reading, schema=described(reading.schema, request, "async"))
        async for batch in reading.batches:
            yield batch
    finally:
        aclose = getattr(reading.batches, "aclose", None)
        if aclose is not None:
            await aclose()


def items(read: Callable[[], Reading], request: Request) -> Generator[Reading | Noted | pa.RecordBatch, None, None]:
    """The same in a thread."""
    reading = read()
    try:
        yield replace(reading, schema=described(reading.schema, request, "sync"))
        yield from reading.batches
    finally:
        close = getattr(reading.batches, "close", None)
        if close is not None:
            close()


def size_of(item: Reading | AsyncReading | Noted | pa.RecordBatch) -> int:
    """The bytes that an item holds while it waits."""
    if isinstance(item, Reading | AsyncReading):
        return 0
    return int(pa.ipc.get_record_batch_size(item.batch if isinstance(item, Noted) else item))


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

    def trailer(self, summary: Summary) -> Note:
        """What is to be known at the end."""
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }

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
