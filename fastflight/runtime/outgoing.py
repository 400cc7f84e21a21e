"""Turns a source's lots into the messages that a client gets, for every edge. No I/O.

A `Packer` works where the source runs. It turns a lot into runs: a run is one batch, measured once and split into
messages of a size that every client accepts. An empty lot, or a batch without rows and without a note, is a sign of
life. Of these signs, one is sent every `HEARTBEAT_SECONDS`; the others are dropped.

`joined` joins small runs that wait together. A run with a note is never joined with others.

An `Account` works where the runs are sent. It counts them and makes the trailer, which follows the last run: rows,
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
from fastflight.service.resolve import AnswerSchema, ResolvedRequest
from fastflight.service.source import AsyncReading, Lot, Noted, Reading, Summary, held_bytes
from fastflight.tables.bare import empty

# Clients refuse messages over 4 MB (the Rust command line) or 16 MB (ADBC), and Arrow never splits one.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
# An idle source gives a sign of life at least every 5 s. A sign that comes this long after the last message is sent, so
# that the client and the proxies on the way see that the stream is alive. It is less than 5 s because a sign that comes
# a little early must be sent as well: the next one would come after 10 s.
HEARTBEAT_SECONDS = 4.5
# In a message a column of fixed width takes less than 256 bytes besides its values. For this many columns that is at
# most half a message.
MAX_PADDED_COLUMNS = MAX_MESSAGE_BYTES // 2 // 256

# A batch below this size may be joined with others: a message costs as much as copying tens of kilobytes.
SMALL_BYTES = 64 * 1024
# The size limit of a joined batch. Above a quarter of a megabyte, joining saves no more time.
JOINED_BYTES = 512 * 1024

# A note is what the source reports at this place among the rows. A piece is a batch with its note, if it has one.
Note = Mapping[str, Any]
Piece = tuple[pa.RecordBatch, Note | None]


class Run(NamedTuple):
    """One batch, split into the messages in which it is sent. A `note` is sent with the first message.

    `bytes` is the size of the batch's values. Small runs (`is_small`) may be joined.
    """

    batches: list[pa.RecordBatch]
    rows: int
    bytes: int
    note: Note | None = None
    is_small: bool = False

    def pieces(self) -> Iterator[Piece]:
        """Yield each message, the first one with the note."""
        note = self.note
        for batch in self.batches:
            yield batch, note
            note = None


# Makes a `Run` from a tuple. Unlike `Run(...)`, this calls no Python function.
_run: Callable[[tuple[list[pa.RecordBatch], int, int, Note | None, bool]], Run] = partial(tuple.__new__, Run)


class Packer:
    """Turns the lots of one answer into runs. `schema` is the schema that is sent."""

    def __init__(self, schema: AnswerSchema) -> None:
        self.schema = schema.sent
        self._row_bytes = schema.row_bytes
        # A batch with at most this many bytes of values surely fits into one message.
        is_light = schema.row_bytes and len(schema.sent) <= MAX_PADDED_COLUMNS
        self._surely_fits = MAX_MESSAGE_BYTES // 2 if is_light else 0
        self._last_run_at = time.monotonic()

    def packed(self, lots: Iterable[Lot]) -> Iterator[list[Run]]:
        """Yield the runs of each lot. A step calls no function: see `docs/architecture.md`, "Flight's threads"."""
        for lot in lots:
            runs = []
            for item in lot or (empty(self.schema),):
                batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, None)
                rows = batch.num_rows
                if not rows and note is None and time.monotonic() - self._last_run_at < HEARTBEAT_SECONDS:
                    continue
                if not batch.schema.equals(self.schema):
                    batch = self._plain(batch)
                # `nbytes` visits each column, so rows of numbers are measured by their number.
                size = rows * self._row_bytes or batch.nbytes
                messages = [batch] if size <= self._surely_fits else list(split(batch))
                # Batches are joined only if all columns have a fixed width in bytes. Joining columns of bits or offsets
                # would change the number of bytes, which the FlightInfo has announced.
                is_small = self._row_bytes > 0 and note is None and 0 < size < SMALL_BYTES
                runs.append(_run((messages, rows, size, note, is_small)))
                self._last_run_at = time.monotonic()
            yield runs

    def pack(self, lot: Lot) -> list[Run]:
        """Return the runs of one lot."""
        return next(self.packed((lot,)))

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the schema that is sent: dictionary columns become plain ones."""
        if batch.schema.names != self.schema.names:
            raise DataError("the source gave a batch with other columns than its schema has")
        try:
            return batch.cast(self.schema)
        except pa.ArrowException as error:
            raise DataError("the source gave a batch that does not fit its schema") from error


def joined(lots: Iterable[Iterable[Run]], max_rows: int) -> Iterator[Run]:
    """Yield the runs of each lot; consecutive small runs of a lot are joined, up to `max_rows`.

    Never waits for another lot.
    """
    for lot in lots:
        small: list[pa.RecordBatch] = []
        rows = size = 0
        for run in lot:
            is_full = size + run.bytes > JOINED_BYTES or rows + run.rows > max_rows
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
    """Counts the runs of one answer as they are sent, also in `stream`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Not those of the stream, which may also count what the client sends.
        self._rows = 0
        self._bytes = 0
        self._looked = time.monotonic()

    def sending(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Yield and count each run. Raise `Stopped` once the stream is not wanted."""
        stream = self._stream
        for run in runs:
            # A write to a client that has left fails by itself. This check is for the case that it does not.
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
        """Return the trailer: totals and the source's summary."""
        self._stream.rejected = int(summary.get("rejected", 0))
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": round(time.perf_counter() - self._stream.began, 6),
            **summary,
        }


def memory_of(item: Reading | AsyncReading | list[Run]) -> int:
    """Return how many bytes of memory an item of `runs` takes while it waits."""
    return sum(held_bytes(run.batches[0], run.bytes) for run in item) if isinstance(item, list) else 0


def runs(read: Callable[[], Reading], resolved: ResolvedRequest) -> Generator[Reading | list[Run], None, None]:
    """Open a source in this thread. Yield its reading, with the schema that is sent, and then the runs of each lot."""
    reading = read()
    try:
        packer = Packer(resolved.answer_schema(reading.schema, "sync"))
        yield replace(reading, schema=packer.schema)
        for packed in packer.packed(reading.all_lots()):
            if packed:
                yield packed
    finally:
        close(reading.lots)


async def aruns(
    read: Callable[[], Awaitable[AsyncReading]], resolved: ResolvedRequest
) -> AsyncIterator[AsyncReading | list[Run]]:
    """`runs` on an event loop. One task opens and iterates the source, so that one cancellation ends both."""
    reading = await read()
    try:
        packer = Packer(resolved.answer_schema(reading.schema, "async"))
        yield replace(reading, schema=packer.schema)
        async for lot in reading.all_lots():
            if packed := packer.pack(lot):
                yield packed
    finally:
        await aclose(reading.lots)


def close(lots: object) -> None:
    """Close an iterator if it has a `close` method."""
    closing = getattr(lots, "close", None)
    if closing is not None:
        closing()


async def aclose(lots: object) -> None:
    """Close an asynchronous iterator if it has an `aclose` method."""
    closing = getattr(lots, "aclose", None)
    if closing is not None:
        await closing()


def split(batch: pa.RecordBatch, max_bytes: int = MAX_MESSAGE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield `batch` in slices whose messages have at most `max_bytes`; a single row may be larger."""
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= max_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), max_bytes)
    yield from split(batch.slice(half), max_bytes)
