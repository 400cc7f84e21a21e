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
from fastflight.runtime.joining import Sizes
from fastflight.runtime.stream import Stream
from fastflight.runtime.weight import weight
from fastflight.service.requests import Mode, Request
from fastflight.service.source import AsyncReading, Noted, Reading, Summary
from fastflight.service.wire import encode

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# A source that has nothing to give says so with batches without rows, at least every 5 s. One that comes so long after
# the last message goes on to the client, so that it and the proxies on the way see that the stream is alive. A word
# that is a little early must go on, too, or the next would come after 10 s.
HEARTBEAT_SECONDS = 4.5
# A column of fixed width has a message describe it and pad its buffers by less than 256 bytes: those of so many columns
# are no more than half a message.
MAX_PADDED_COLUMNS = MAX_MESSAGE_BYTES // 2 // 256

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


class Weighed:
    """The bytes that each item of one answer holds while it waits."""

    def __init__(self) -> None:
        self._sizes: Sizes | None = None
        self._last: pa.RecordBatch | None = None

    def __call__(self, item: Reading | AsyncReading | Noted | pa.RecordBatch) -> int:
        if isinstance(item, Reading | AsyncReading):
            self._sizes = Sizes(item.schema)
            return 0
        assert self._sizes is not None, "the reading comes first"
        batch = item.batch if isinstance(item, Noted) else item
        size = self._sizes.of(batch)
        if batch is self._last:  # given again, as the benchmark table is: there is no more of it
            return size
        self._last = batch
        return weight(batch, size)


def most_rows(request: Request) -> int | None:
    """How many rows a batch may have at most; None where the request does not say."""
    return getattr(request, "batch_rows", None)


class Outgoing:
    """One answer on its way: `pieces` of each item that the source gives, then the `trailer`.

    Or, for an edge that can have it so, `batches` of one item after the other, with less to do for each.
    """

    def __init__(self, schema: pa.Schema, stream: Stream) -> None:
        """`schema` is the `described` one. What goes out is counted in `stream`."""
        self._schema = schema
        self._stream = stream
        self._sent = time.monotonic()
        self._sizes = Sizes(schema)
        # Of a batch of so many bytes it need not be asked how large its message is.
        flat = all(pa.types.is_primitive(field.type) for field in schema)
        self._surely_fits = MAX_MESSAGE_BYTES // 2 if flat and len(schema) <= MAX_PADDED_COLUMNS else 0
        # The stream may count what comes, too.
        self._rows = 0
        self._bytes = 0

    def pieces(self, item: pa.RecordBatch | Noted) -> Iterator[Piece]:
        """What goes out of a batch. Raises `Stopped` once nobody wants it."""
        batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
        passed = self._passed(batch, is_noted=note is not None)
        for piece in split(passed) if passed is not None else ():
            self.offer()
            yield piece, note
            note = None
        self._stream.offered = 0.0

    def batches(self, items: Iterator[pa.RecordBatch | Noted]) -> Generator[pa.RecordBatch, None, Noted | None]:
        """What goes out of `items` up to the first that is `Noted`: returns that, or None at the end."""
        for item in items:
            if isinstance(item, Noted):
                return item
            batch = self._passed(item, is_noted=False)
            if batch is None:
                continue
            if self._sizes.last <= self._surely_fits:
                self._stream.offered = self._sent
                yield batch
            else:
                for piece in split(batch):
                    self.offer()
                    yield piece
            self._stream.offered = 0.0
        return None

    def offer(self) -> None:
        """Something is in front of the client from now on."""
        self._stream.offered = time.monotonic()

    def trailer(self, summary: Summary) -> Note:
        """What is to be known at the end."""
        self._stream.rejected = int(summary.get("rejected", 0))
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }

    def _passed(self, batch: pa.RecordBatch, *, is_noted: bool) -> pa.RecordBatch | None:
        """The batch as it is sent, counted; None if it need not be."""
        self._stream.passing()
        now = time.monotonic()
        rows = batch.num_rows
        if not rows and not is_noted and now - self._sent < HEARTBEAT_SECONDS:
            return None
        self._sent = now
        if not batch.schema.equals(self._schema):
            batch = _conformed(batch, self._schema)
        size = self._sizes.of(batch)
        self._rows += rows
        self._bytes += size
        self._stream.count(rows, size)
        return batch


def split(batch: pa.RecordBatch, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most `max_bytes`; a single row may be larger."""
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= max_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), max_bytes)
    yield from split(batch.slice(half), max_bytes)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with dictionary columns as the plain one that is sent."""
    if batch.schema.names != schema.names:
        raise DataError("the source gave a batch with other columns than its schema has")
    try:
        return batch.cast(schema)
    except pa.ArrowException as error:
        raise DataError("the source gave a batch that does not fit its schema") from error
