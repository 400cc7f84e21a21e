"""do_get: a source's batches as a Flight stream.

`sync_answer` reads in the calling thread, `async_answer` on the shard; both end in one generator that Flight iterates.
It sends batches of a size that every client takes, then one empty batch whose app metadata is the trailer: JSON with
rows, bytes, duration_seconds and the source's summary. A batch that the source
`Noted` carries its note as app metadata. It owns the source's iterator: however it ends, that is closed.

While an async source is idle the client is looked after every 20 ms. A sync source is asked in the handler's thread,
where nothing can interrupt it: one that can be idle must give an empty batch now and then, as DESIGN's live streams do.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.concurrency import Shard, drain
from fastflight.errors import DataError, Stopped
from fastflight.server.status import flight_error
from fastflight.service import dispatch, encode
from fastflight.service.ledger import Stream
from fastflight.service.requests import Mode, Request
from fastflight.service.source import AsyncReading, Noted, Reading, Source

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# A source that has nothing to give says so with batches without rows. One this often goes on to the client, so that it
# and the proxies on the way see that the stream is alive.
HEARTBEAT_SECONDS = 5.0
# What waits between the loop and the handler: four full messages, beyond which more gain nothing.
HANDOFF_BYTES = 8 * 1024 * 1024


# What Flight takes: a batch, or one with its app metadata.
Message = Any
Opened = tuple[pa.Schema, Generator[Message, None, None]]


def sync_answer(source: Source[Any], request: Request, stream: Stream) -> flight.FlightDataStream:
    """Open the source here and answer from this thread."""
    read = dispatch.reader(source)
    return flight.GeneratorStream(*sync_messages(lambda: read(request), request, stream))


def async_answer(source: Source[Any], request: Request, stream: Stream, shard: Shard) -> flight.FlightDataStream:
    """Open and iterate the source on the shard; answer from this thread."""
    read = dispatch.async_reader(source)
    return flight.GeneratorStream(*async_messages(lambda: read(request), request, stream, shard))


def sync_messages(read: Callable[[], Reading], request: Request, stream: Stream) -> Opened:
    """The schema and the messages of an answer that is read in this thread."""
    reading = read()
    schema = described(reading.schema, request, "sync")
    return schema, _begin(replace(reading, schema=schema), stream)


def async_messages(
    read: Callable[[], Awaitable[AsyncReading]], request: Request, stream: Stream, shard: Shard
) -> Opened:
    """The schema and the messages of an answer that is read on the shard."""
    items = _on_loop(read, request)
    drained = drain(shard, items, max_bytes=HANDOFF_BYTES, size_of=_size, still_wanted=stream.check)
    reading = cast(AsyncReading, next(drained))
    batches = cast("Iterator[pa.RecordBatch | Noted]", drained)
    return reading.schema, _begin(Reading(reading.schema, batches, reading.summary, reading.drain), stream)


async def _on_loop(
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


def described(schema: pa.Schema, request: Request, path: Mode) -> pa.Schema:
    """`schema` as it is sent, saying what was asked and what served it."""
    metadata = {**(schema.metadata or {}), b"fastflight.request": encode(request), b"fastflight.path": path.encode()}
    return plain(schema).with_metadata(metadata)


def plain(schema: pa.Schema) -> pa.Schema:
    """`schema` with dictionary columns as their values: GeneratorStream cannot send them (apache/arrow#38480)."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


def _size(item: AsyncReading | Noted | pa.RecordBatch) -> int:
    if isinstance(item, AsyncReading):
        return 0
    return int(pa.ipc.get_record_batch_size(item.batch if isinstance(item, Noted) else item))


def _begin(reading: Reading, stream: Stream) -> Generator[Message, None, None]:
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    generator = _send(reading, stream)
    next(generator)  # from here on, dropping it runs its `finally`: a client may leave before the first batch
    return generator


def _send(reading: Reading, stream: Stream) -> Generator[Message, None, None]:
    outcome = "cancelled"
    measured = _Measured()
    schema = reading.schema
    # The stream may count what comes, too.
    rows = size = 0
    try:
        yield None
        sent = time.monotonic()
        for item in reading.batches:
            stream.passing()
            batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
            now = time.monotonic()
            if not batch.num_rows and note is None and now - sent < HEARTBEAT_SECONDS:
                continue
            sent = now
            if not batch.schema.equals(schema):
                batch = _conformed(batch, schema)
            rows += batch.num_rows
            size += measured.size(batch)
            stream.count(batch.num_rows, measured.size(batch))
            pieces = split(batch)
            if note is not None:
                yield next(pieces), pa.py_buffer(json.dumps(note).encode())
            yield from pieces
        trailer = {
            "rows": rows,
            "bytes": size,
            "duration_seconds": round(time.perf_counter() - stream.began, 6),
            **reading.summary(),
        }
        yield pa.RecordBatch.from_pylist([], schema=schema), pa.py_buffer(json.dumps(trailer, default=str).encode())
        outcome = "finished"
    except GeneratorExit:
        raise
    except BaseException as error:
        outcome = "cancelled" if isinstance(error, Stopped) else "failed"
        raise flight_error(error) from None
    finally:
        stream.close(outcome)
        close = getattr(reading.batches, "close", None)
        if close is not None:
            close()


class _Measured:
    """The bytes of batches. Measuring takes 2 us a column, so one that a source gives again is not measured again."""

    def __init__(self) -> None:
        self._batch: pa.RecordBatch | None = None
        self._size = 0

    def size(self, batch: pa.RecordBatch) -> int:
        if batch is not self._batch:
            self._batch, self._size = batch, batch.nbytes
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
