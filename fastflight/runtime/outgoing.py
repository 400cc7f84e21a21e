"""From a source's lots to what a client gets, for every edge. No I/O.

A `Packer` works where the source runs. It makes a lot into runs: each batch measured once, in messages of a size that
every client takes. A batch without rows and without a note, and an empty lot, are signs of life: one every
`HEARTBEAT_SECONDS` is sent.

A `Joiner` joins small runs that wait together. It never waits for more, and what has a note is joined with nothing.

An `Account` works where the runs are sent. It counts them, and makes the trailer that follows the last one: rows,
bytes, duration_seconds and the source's summary.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.runtime.stream import Stream
from fastflight.service.requests import MAX_BATCH_ROWS, Mode, Request
from fastflight.service.source import AsyncReading, Lot, Noted, Reading, Summary, held_bytes
from fastflight.service.wire import encode
from fastflight.tables.bare import empty

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# Sources show that they are alive at least every 5 s. One whose sign comes so long after the last message goes on to
# the client, so that it and the proxies on the way see that the stream is alive. A sign that is a little early must go
# on, too, or the next would come after 10 s.
HEARTBEAT_SECONDS = 4.5
# A column of fixed width takes less than 256 bytes of a message beside its values: those of so many columns are no more
# than half a message.
MAX_PADDED_COLUMNS = MAX_MESSAGE_BYTES // 2 // 256

# A batch below this size may be joined with others: a message costs as much as copying tens of kilobytes.
SMALL_BYTES = 64 * 1024
# From a quarter of a megabyte on joining gets no cheaper.
JOINED_BYTES = 512 * 1024

# A batch, and what is to be known at its place.
Note = Mapping[str, Any]
Piece = tuple[pa.RecordBatch, Note | None]


@dataclass(frozen=True, slots=True)
class Run:
    """One batch, in the messages in which it is sent. A `note` belongs to the first of them. `bytes`: of its values."""

    batches: list[pa.RecordBatch]
    rows: int
    bytes: int
    note: Note | None = None

    def pieces(self) -> Iterator[Piece]:
        """Each batch, the first one with the note."""
        note = self.note
        for batch in self.batches:
            yield batch, note
            note = None


class Packer:
    """Makes one answer's lots into runs. `schema` is the one that is sent."""

    def __init__(self, schema: pa.Schema, request: Request, path: Mode) -> None:
        """`schema` is the source's; `path` served the request."""
        said = {b"fastflight.request": encode(request), b"fastflight.path": path.encode()}
        self.schema = plain(schema).with_metadata({**(schema.metadata or {}), **said})
        # A batch with at most so many bytes of values is below the size of a message without measuring that.
        flat = all(pa.types.is_primitive(field.type) for field in schema)
        self._surely_fits = MAX_MESSAGE_BYTES // 2 if flat and len(schema) <= MAX_PADDED_COLUMNS else 0
        self._given = time.monotonic()
        # Measuring takes 2 us a column, and a source may give a batch again.
        self._measured: pa.RecordBatch | None = None
        self._size = 0

    def pack(self, lot: Lot) -> Iterator[Run]:
        """What is sent of a lot."""
        for item in lot or (empty(self.schema),):
            batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
            if not batch.num_rows and note is None and not self._is_due():
                continue
            batch = self._plain(batch)
            size = self._measure(batch)
            self._given = time.monotonic()
            messages = [batch] if size <= self._surely_fits else list(split(batch))
            yield Run(messages, batch.num_rows, size, note)

    def _is_due(self) -> bool:
        return time.monotonic() - self._given >= HEARTBEAT_SECONDS

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with dictionary columns as the plain one that is sent."""
        if batch.schema.equals(self.schema):
            return batch
        if batch.schema.names != self.schema.names:
            raise DataError("the source gave a batch with other columns than its schema has")
        try:
            return batch.cast(self.schema)
        except pa.ArrowException as error:
            raise DataError("the source gave a batch that does not fit its schema") from error

    def _measure(self, batch: pa.RecordBatch) -> int:
        if batch is not self._measured:
            self._measured, self._size = batch, int(batch.nbytes)
        return self._size


class Joiner:
    """Joins small runs of one answer."""

    def __init__(self, schema: pa.Schema, request: Request) -> None:
        # Bits and offsets of joined batches take fewer bytes than those of the parts, but how many bytes an answer has
        # is said before it is read.
        self._joins = all(pa.types.is_primitive(field.type) and not pa.types.is_boolean(field.type) for field in schema)
        # The most rows of a batch, where the request says it.
        self._most_rows: int = getattr(request, "batch_rows", None) or MAX_BATCH_ROWS

    def join(self, waiting: Iterable[Run]) -> Iterator[Run]:
        """The runs that wait, where small ones that follow each other are one."""
        if not self._joins:
            yield from waiting
            return
        small: list[pa.RecordBatch] = []
        rows = size = 0
        for run in waiting:
            is_small = run.note is None and 0 < run.bytes < SMALL_BYTES
            is_full = size + run.bytes > JOINED_BYTES or rows + run.rows > self._most_rows
            if small and (is_full or not is_small):
                yield _one(small, rows, size)
                small, rows, size = [], 0, 0
            if not is_small:
                yield run
                continue
            small += run.batches
            rows += run.rows
            size += run.bytes
        if small:
            yield _one(small, rows, size)


def _one(batches: list[pa.RecordBatch], rows: int, size: int) -> Run:
    return Run(batches if len(batches) == 1 else [pa.concat_batches(batches)], rows, size)


class Account:
    """Counts the runs of one answer as they are sent, in `stream`, too."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # The stream may count what comes, too.
        self._rows = 0
        self._bytes = 0

    def sending(self, run: Run) -> None:
        """A run goes out. Raises `Stopped` once nobody wants it."""
        self._stream.passing()
        self._rows += run.rows
        self._bytes += run.bytes
        self._stream.count(run.rows, run.bytes)

    def trailer(self, summary: Summary) -> Note:
        """What is to be known at the end."""
        self._stream.rejected = int(summary.get("rejected", 0))
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }


def held(item: Reading | AsyncReading | Run) -> int:
    """The memory that an item of `runs` takes while it waits."""
    return held_bytes(item.batches[0], item.bytes) if isinstance(item, Run) else 0


def runs(read: Callable[[], Reading], request: Request) -> Generator[Reading | Run, None, None]:
    """Open a source and pack it, in this thread: the reading, with the schema that is sent, then the runs."""
    reading = read()
    try:
        packer = Packer(reading.schema, request, "sync")
        yield replace(reading, schema=packer.schema)
        for lot in chain((reading.first,) if reading.first else (), reading.lots):
            yield from packer.pack(lot)
    finally:
        close(reading.lots)


async def aruns(read: Callable[[], Awaitable[AsyncReading]], request: Request) -> AsyncIterator[AsyncReading | Run]:
    """As `runs`, on an event loop: opened and iterated by one task, so that one cancellation ends both."""
    reading = await read()
    try:
        packer = Packer(reading.schema, request, "async")
        yield replace(reading, schema=packer.schema)
        if reading.first:
            for run in packer.pack(reading.first):
                yield run
        async for lot in reading.lots:
            for run in packer.pack(lot):
                yield run
    finally:
        await aclose(reading.lots)


def close(lots: object) -> None:
    """Close an iterator that can be closed."""
    closing = getattr(lots, "close", None)
    if closing is not None:
        closing()


async def aclose(lots: object) -> None:
    """Close an asynchronous iterator that can be closed."""
    closing = getattr(lots, "aclose", None)
    if closing is not None:
        await closing()


def plain(schema: pa.Schema) -> pa.Schema:
    """`schema` with dictionary columns as their values: Flight's generators cannot send them (apache/arrow#38480)."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


def split(batch: pa.RecordBatch, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most `max_bytes`; a single row may be larger."""
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= max_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), max_bytes)
    yield from split(batch.slice(half), max_bytes)
