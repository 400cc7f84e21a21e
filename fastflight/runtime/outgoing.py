"""From a source's lots to what a client gets, for every edge. No I/O.

A `Packer` works where the source runs. It makes a lot into runs: each batch measured once, in messages of a size that
every client takes. A batch without rows and without a note, and an empty lot, are signs of life: one every
`HEARTBEAT_SECONDS` is sent.

`joined` joins small runs that wait together. What has a note is joined with nothing.

An `Account` works where the runs are sent. It counts them, and makes the trailer that follows the last one: rows,
bytes, duration_seconds and the source's summary.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.runtime.stream import LOOK_SECONDS, Stream
from fastflight.service.requests import MAX_BATCH_ROWS, Request
from fastflight.service.resolve import AnswerSchema, ResolvedRequest
from fastflight.service.source import AsyncReading, Lot, Noted, Reading, Summary, held_bytes
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


class Run(NamedTuple):
    """One batch, in the messages in which it is sent. A `note` belongs to the first of them. `bytes`: of its values.

    One that `is_small` may be joined with others that are.
    """

    batches: list[pa.RecordBatch]
    rows: int
    bytes: int
    note: Note | None = None
    is_small: bool = False

    def pieces(self) -> Iterator[Piece]:
        """Each batch, the first one with the note."""
        note = self.note
        for batch in self.batches:
            yield batch, note
            note = None


# As `Run(...)`, but without entering Python.
_run: Callable[[tuple[list[pa.RecordBatch], int, int, Note | None, bool]], Run] = partial(tuple.__new__, Run)


class Packer:
    """Makes one answer's lots into runs. `schema` is the one that is sent."""

    def __init__(self, schema: AnswerSchema) -> None:
        self.schema = schema.sent
        self._row_bytes = schema.row_bytes
        # A batch with at most so many bytes of values is below the size of a message without measuring that.
        is_light = schema.row_bytes and len(schema.sent) <= MAX_PADDED_COLUMNS
        self._surely_fits = MAX_MESSAGE_BYTES // 2 if is_light else 0
        self._given = time.monotonic()
        # A source may give a batch again.
        self._measured: pa.RecordBatch | None = None
        self._size = 0

    def packed(self, lots: Iterable[Lot]) -> Iterator[list[Run]]:
        """What is sent of each lot. Not divided into functions: see `docs/architecture.md`, "Flight's threads"."""
        for lot in lots:
            runs = []
            for item in lot or (empty(self.schema),):
                batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
                rows = batch.num_rows
                if not rows and note is None and time.monotonic() - self._given < HEARTBEAT_SECONDS:
                    continue
                if not batch.schema.equals(self.schema):
                    batch = self._plain(batch)
                if batch is not self._measured:
                    size = rows * self._row_bytes
                    for column in batch.columns if size else ():
                        if column.null_count:
                            size = 0
                            break
                    # `nbytes` takes 2 us a column, and gives up the interpreter's lock twice.
                    self._measured, self._size = batch, size or batch.nbytes
                size = self._size
                messages = [batch] if size <= self._surely_fits else list(split(batch))
                # Bits and offsets of joined batches take fewer bytes than those of the parts, but how many bytes an
                # answer has is said before it is read.
                is_small = self._row_bytes > 0 and note is None and 0 < size < SMALL_BYTES
                runs.append(_run((messages, rows, size, note, is_small)))
                self._given = time.monotonic()
            yield runs

    def pack(self, lot: Lot) -> list[Run]:
        """The same of one lot."""
        return next(self.packed((lot,)))

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with dictionary columns as the plain one that is sent."""
        if batch.schema.names != self.schema.names:
            raise DataError("the source gave a batch with other columns than its schema has")
        try:
            return batch.cast(self.schema)
        except pa.ArrowException as error:
            raise DataError("the source gave a batch that does not fit its schema") from error


def joined(lots: Iterable[Iterable[Run]], request: Request) -> Iterator[Run]:
    """The runs of each lot, where small ones that follow each other are one. It never waits for more."""
    # The most rows of a batch, where the request says it.
    most_rows: int = getattr(request, "batch_rows", None) or MAX_BATCH_ROWS
    for lot in lots:
        small: list[pa.RecordBatch] = []
        rows = size = 0
        for run in lot:
            is_full = size + run.bytes > JOINED_BYTES or rows + run.rows > most_rows
            if small and (is_full or not run.is_small):
                yield _run((small if len(small) == 1 else [pa.concat_batches(small)], rows, size, None, False))
                small, rows, size = [], 0, 0
            if not run.is_small:
                yield run
                continue
            small += run.batches
            rows += run.rows
            size += run.bytes
        if small:
            yield _run((small if len(small) == 1 else [pa.concat_batches(small)], rows, size, None, False))


class Account:
    """Counts the runs of one answer as they are sent, in `stream`, too."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # The stream may count what comes, too.
        self._rows = 0
        self._bytes = 0
        self._looked = time.monotonic()

    def sending(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Each run, which goes out then. Raises `Stopped` once nobody wants it. Inline, as `Packer.packed` is."""
        stream = self._stream
        for run in runs:
            # A write to a client that has left fails by itself: looking is the second line.
            now = time.monotonic()
            if stream.why_stop or now - self._looked >= LOOK_SECONDS:
                self._looked = now
                stream.check()
            self._rows += run.rows
            self._bytes += run.bytes
            stream.rows += run.rows
            stream.bytes += run.bytes
            yield run

    def trailer(self, summary: Summary) -> Note:
        """What is to be known at the end."""
        self._stream.rejected = int(summary.get("rejected", 0))
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }


def held(item: Reading | AsyncReading | list[Run]) -> int:
    """The memory that an item of `runs` takes while it waits."""
    return sum(held_bytes(run.batches[0], run.bytes) for run in item) if isinstance(item, list) else 0


def runs(read: Callable[[], Reading], asked: ResolvedRequest) -> Generator[Reading | list[Run], None, None]:
    """Open a source and pack it, in this thread: the reading, with the schema that is sent, then each lot's runs."""
    reading = read()
    try:
        packer = Packer(asked.answer_schema(reading.schema, "sync"))
        yield replace(reading, schema=packer.schema)
        for packed in packer.packed(reading.all_lots()):
            if packed:
                yield packed
    finally:
        close(reading.lots)


async def aruns(
    read: Callable[[], Awaitable[AsyncReading]], asked: ResolvedRequest
) -> AsyncIterator[AsyncReading | list[Run]]:
    """As `runs`, on an event loop: opened and iterated by one task, so that one cancellation ends both."""
    reading = await read()
    try:
        packer = Packer(asked.answer_schema(reading.schema, "async"))
        yield replace(reading, schema=packer.schema)
        async for lot in reading.all_lots():
            if packed := packer.pack(lot):
                yield packed
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


def split(batch: pa.RecordBatch, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most `max_bytes`; a single row may be larger."""
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= max_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), max_bytes)
    yield from split(batch.slice(half), max_bytes)
