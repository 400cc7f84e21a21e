"""Turns a source's answer into the messages that a client gets, for every edge. No I/O.

`Outgoing` is used in two places. Where the source runs, it opens the source and makes messages of its batches:
measured, and split to a size that every client accepts. Where they are sent, it joins small messages that wait
together, counts them, and makes the trailer, which follows the last one: rows, bytes, duration_seconds and the source's
summary.

An empty list, or a batch without rows and without a note, is a sign of life. Of these signs, one is sent every
`HEARTBEAT_SECONDS`; the others are dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import TypeAlias, cast

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.runtime.stream import LOOK_SECONDS, Stream
from fastflight.service.choices import Mode
from fastflight.service.source import Batches, Note, Noted, Reading, held_bytes, no_summary
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

# A message below this size may be joined with others: a message costs as much as copying tens of kilobytes.
SMALL_BYTES = 64 * 1024
# The size limit of joined messages. Above a quarter of a megabyte, joining saves no more time.
JOINED_BYTES = 512 * 1024

# A batch, and the note that is sent with it, if any.
Message: TypeAlias = tuple[pa.RecordBatch, Note | None]
# A message, and the bytes of its values.
Measured: TypeAlias = tuple[pa.RecordBatch, Note | None, int]


class Outgoing:
    """The messages of one answer. Iterate `opened` or `aopened`, and pass what it yields to `sent`; then `trailer`.

    `reading` and `schema`, the schema that is sent, are set when the first list of messages comes.
    """

    reading: Reading
    schema: pa.Schema

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        # Not those of the stream, which may also count what the client sends.
        self._rows = self._bytes = 0
        self._last_message_at = time.monotonic()

    def opened(self, read: Callable[[], Reading]) -> Generator[list[Measured], None, None]:
        """Open a source in this thread. Yield a list of messages whenever some are ready; the first may be empty."""
        reading = read()
        try:
            yield self._begin(reading, "sync")
            if reading.rest is not None:
                yield from self._messages(cast("Iterator[Batches]", reading.rest))
        finally:
            reading.close()

    async def aopened(self, read: Callable[[], Awaitable[Reading]]) -> AsyncIterator[list[Measured]]:
        """`opened` on an event loop. One task opens and iterates the source, so that one cancellation ends both."""
        reading = await read()
        try:
            yield self._begin(reading, "async")
            if reading.rest is not None:
                async for batches in cast("AsyncIterator[Batches]", reading.rest):
                    if messages := next(self._messages((batches,))):
                        yield messages
        finally:
            await reading.aclose()

    def sent(self, waiting: Iterable[Iterable[Measured]]) -> Iterator[Message]:
        """Yield the messages to send, and count each. Messages of one list of `waiting` may be joined.

        Raise `Stopped` once the stream is not wanted.
        """
        stream = self._stream
        for batch, note, size in self._joined(waiting):
            # A write to a client that has left fails by itself. This check is for the case that it does not.
            if stream.why_stop or time.perf_counter() - stream.looked >= LOOK_SECONDS:
                stream.passing()
            rows = batch.num_rows
            self._rows += rows
            self._bytes += size
            stream.rows += rows
            stream.bytes += size
            yield batch, note

    def trailer(self) -> Note:
        """Return the trailer: totals and the source's summary."""
        summary = self.reading.summary()
        self._stream.rejected = int(summary.get("rejected", 0))
        return {
            "rows": self._rows,
            "bytes": self._bytes,
            "duration_seconds": self._seconds(),
            **summary,
        }

    def trailer_json(self) -> bytes:
        """Return the trailer as JSON. That of most answers has only the totals, which need no encoder."""
        if self.reading.summary is no_summary:
            totals = f'"rows": {self._rows}, "bytes": {self._bytes}, "duration_seconds": {self._seconds()}'
            return f"{{{totals}}}".encode()
        return json.dumps(self.trailer(), default=str).encode()

    def _seconds(self) -> float:
        return round(time.perf_counter() - self._stream.began, 6)

    def _begin(self, reading: Reading, path: Mode) -> list[Measured]:
        """Take the schema of a reading, and return its first messages."""
        answer = self._stream.resolved.answer_schema(reading.schema, path)
        self.reading, self.schema = reading, answer.sent
        # Bytes of the values of a row, if all columns have a fixed width; else 0.
        self._row_bytes = answer.row_bytes
        # A batch with at most this many bytes of values surely fits into one message.
        is_light = answer.row_bytes and len(answer.sent) <= MAX_PADDED_COLUMNS
        self._surely_fits = MAX_MESSAGE_BYTES // 2 if is_light else 0
        return next(self._messages((reading.first,))) if reading.first else []

    def _messages(self, ready: Iterable[Batches]) -> Iterator[list[Measured]]:
        """Yield the messages of each list of batches. A step calls no function (decision 0061)."""
        for batches in ready:
            messages: list[Measured] = []
            for each in batches or (empty(self.schema),):
                batch, note = (each.batch, each.note) if isinstance(each, Noted) else (each, None)
                rows = batch.num_rows
                if not rows and note is None and time.monotonic() - self._last_message_at < HEARTBEAT_SECONDS:
                    continue
                if not batch.schema.equals(self.schema):
                    batch = self._plain(batch)
                # `nbytes` visits each column, so rows of numbers are measured by their number.
                size = rows * self._row_bytes or batch.nbytes
                if size <= self._surely_fits:
                    messages.append((batch, note, size))
                else:
                    messages += _split(batch, note, size)
                self._last_message_at = time.monotonic()
            yield messages

    def _joined(self, waiting: Iterable[Iterable[Measured]]) -> Iterator[Measured]:
        """Join consecutive small messages that wait at the same time, up to the rows that the request allows.

        They are joined only if all columns have a fixed width in bytes. Joining columns of bits or offsets would change
        the number of bytes, which the FlightInfo has announced.
        """
        max_rows = self._stream.resolved.max_batch_rows
        for messages in waiting:
            small: list[pa.RecordBatch] = []
            rows = size = 0
            for message in messages:
                batch, note, more = message
                is_small = self._row_bytes and note is None and 0 < more < SMALL_BYTES
                is_full = size + more > JOINED_BYTES or rows + batch.num_rows > max_rows
                if small and (is_full or not is_small):
                    yield small[0] if len(small) == 1 else pa.concat_batches(small), None, size
                    small, rows, size = [], 0, 0
                if is_small:
                    small.append(batch)
                    rows += batch.num_rows
                    size += more
                else:
                    yield message
            if small:
                yield small[0] if len(small) == 1 else pa.concat_batches(small), None, size

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the schema that is sent: dictionary columns become plain ones."""
        if batch.schema.names != self.schema.names:
            raise DataError("the source gave a batch with other columns than its schema has")
        try:
            return batch.cast(self.schema)
        except pa.ArrowException as error:
            raise DataError("the source gave a batch that does not fit its schema") from error


def memory_of(messages: list[Measured]) -> int:
    """Return how many bytes of memory messages take while they wait."""
    return sum(held_bytes(batch, size) for batch, _, size in messages)


def _split(batch: pa.RecordBatch, note: Note | None, size: int) -> Iterator[Measured]:
    """Yield `batch` in slices whose messages have at most `MAX_MESSAGE_BYTES`; a single row may be larger.

    The first one has the note.
    """
    if batch.num_rows <= 1 or pa.ipc.get_record_batch_size(batch) <= MAX_MESSAGE_BYTES:
        yield batch, note, size
        return
    half = batch.num_rows // 2
    for part, its_note in ((batch.slice(0, half), note), (batch.slice(half), None)):
        yield from _split(part, its_note, part.nbytes)
