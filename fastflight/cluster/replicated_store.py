"""Recordings in JetStream, with the methods of `Store` and `Log` of the embedded engine (`fastflight.log`).

    store = ReplicatedStore(connection, shard)           # the shard whose loop `connection` is used on
    log = store.open("weather", schema)
    log.append(batch).result()                           # returns when a quorum has the rows on its disks
    for item in log.read(Range(from_seq=100)): ...

`append` returns a ticket at once, as in the embedded engine. The messages of a log are sent one after the other: each
one names the sequence number of the log's message before it, and JetStream refuses it if that is not the last one. So
rows are stored once and in order, even if an acknowledgement is lost and the message is sent again, and whoever else
writes. A batch that is too large for one message is stored as several; if that fails, the first ones may be stored.

Methods that wait for NATS must not be called on the loop of the shard. They raise `TransportError` if NATS cannot be
used.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.log_stream import LogStream, State, Tail, subject_of
from fastflight.cluster.record import HEADER_BYTES, Record, Totals, encode_record
from fastflight.cluster.replicated_reading import ReplicatedReading, extents, statistics
from fastflight.concurrency import Shard
from fastflight.errors import (
    BusyError,
    DataError,
    FastFlightError,
    RequestError,
    SequenceConflict,
    Stopped,
    StorageError,
    TransportError,
    UnknownName,
    nearest,
)
from fastflight.log import EVERYTHING, Extent, LogStatistics, Missing, NumberedRows, Range, Retention, Ticket
from fastflight.log.committer import MAX_WAITING_BYTES, Commit
from fastflight.log.content import MAX_NAME_BYTES, Codec, LogState, log_number
from fastflight.log.index import MAX_SEQ
from fastflight.log.retention import RetentionCheck

T = TypeVar("T")

# A message may have 1 MB in NATS as it comes, headers included.
MAX_BODY_BYTES = 1_000_000 - HEADER_BYTES - 1024
# An append fails if NATS has not acknowledged it after this time. A new connection and a new leader take seconds each.
PATIENCE_SECONDS = 30.0
# Between two attempts to send a message.
RETRY_SECONDS = 0.2
# Retention deletes again when what it has deleted since would be more than this part of what is kept.
SWEEP_PART = 64


# The rows of a part of a batch, their earliest and latest time, and their body.
_Part = tuple[int, tuple[int, int], memoryview]


class _Waiting(NamedTuple):
    """A message to send. `commit` is finished when it is stored; None if it is not the last one of its append."""

    begin: int
    pause_end: int
    first: int
    rows: int
    times: tuple[int, int]
    body: memoryview
    commit: Commit | None


class _End(NamedTuple):
    """The end of a log as its writer knows it: the last message, the next number, the totals, and the last token."""

    seq: int
    next: int
    totals: Totals
    token: int


class _Refused(Exception):
    """A message was not stored. `make` makes an error for each append that waits."""

    def __init__(self, make: Callable[[], FastFlightError]) -> None:
        super().__init__()
        self.make = make


class ReplicatedLog:
    """One log of a `ReplicatedStore`. Any thread but the loop's may use it; `aappend` is for any loop."""

    def __init__(self, store: ReplicatedStore, name: str, state: State) -> None:
        self.name = name
        self.codec = Codec(pa.ipc.read_schema(pa.py_buffer(state.log.schema)))
        # The fencing token of the lease that this server holds for the device; 0: none is needed.
        self.token = 0
        self._store = store
        self._subject = subject_of(name)
        self._number = log_number(name)
        # None if it is not known: at first, and after an append that failed.
        self._end: _End | None = None
        self._assigned_end = 0
        # The number after the last row that was acknowledged to this store. JetStream may lose the end of a stream.
        self._acknowledged = 0
        self._queue: deque[_Waiting] = deque()
        self._sending = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""
        return self.codec.schema

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""
        if self._end is None:
            self._store.call(self._look())
        return self._assigned_end

    async def anext_seq(self) -> int:
        """As `next_seq`, on the loop of the connection."""
        if self._end is None:
            await self._look()
        return self._assigned_end

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `Log.append`. Waits for NATS if the log's end is not known."""
        parts = self._encode(batch)
        while True:
            ticket = self._put(parts, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            if ticket is None:
                self._store.call(self._look())
            else:
                ticket.wait(None)

    async def aappend(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `append`, on an event loop, which goes on while this waits."""
        parts = self._encode(batch)
        while True:
            ticket = self._put(parts, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            if ticket is None:
                await asyncio.wrap_future(self._store.submit(self._look()))
            else:
                await ticket.await_end()

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `DataError` if `append` would, because of the batch."""
        if batch.nbytes > MAX_BODY_BYTES // 2:
            self._encode(batch)

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        """As `Log.read`. `StorageError` at the end if the newest rows are damaged, so that their number is unknown."""
        return ReplicatedReading(self._store, self.name, self.codec, wanted, self._acknowledged).run()

    def statistics(self) -> LogStatistics:
        """As `Log.statistics`."""
        return statistics(self._store, self.name)

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `Log.extents`."""
        return extents(self._store, self.name, wanted)

    def trim(self, before_seq: int) -> Ticket:
        """As `Log.trim`."""
        commit = Commit()
        first = min(max(before_seq, 0), self.next_seq)

        async def work() -> None:
            try:
                await self._trim(before_seq)
            except FastFlightError as error:
                make = functools.partial(StorageError, error.what, where=error.where, hint=error.hint)
                commit.finish(make)
            else:
                commit.finish()

        self._store.submit(work())
        return Ticket(first, first - 1, commit)

    async def _trim(self, before_seq: int) -> None:
        stream = self._store.stream
        while True:
            state = await stream.state(self.name)
            if state is None:
                raise UnknownName("no such recording", where=self.name)
            tail = await stream.tail(self.name, state.log.next)
            first = min(max(before_seq, state.log.first), tail.next)
            if first == state.log.first or await stream.put_state(state.log._replace(first=first), state.revision):
                break
        # The last message stays: it has the log's next number and totals.
        until = await stream.find(self._subject, self._number, tail.seq, lambda record: record.next > first)
        if (until := min(until, tail.seq)) > 1:
            await stream.purge(until, self._subject)

    def _encode(self, batch: pa.RecordBatch) -> list[_Part]:
        if not batch.num_rows:
            raise DataError("a batch without rows", where=self.name, hint="There is nothing to keep")
        return list(self._parts(batch))

    def _parts(self, batch: pa.RecordBatch) -> Iterator[_Part]:
        body = self.codec.encode(batch)
        if len(body) <= MAX_BODY_BYTES:
            yield batch.num_rows, self.codec.times(batch), body
            return
        if batch.num_rows == 1:
            raise DataError(f"a row of {len(body)} bytes", where=self.name, hint=f"At most {MAX_BODY_BYTES} bytes")
        half = batch.num_rows // 2
        yield from self._parts(batch.slice(0, half))
        yield from self._parts(batch.slice(half))

    async def _look(self) -> None:
        """Find the end of the log."""
        end = _end_of(await self._find_tail())
        with self._store.lock:
            if self._end is None and not self._queue:
                self._end, self._assigned_end = end, end.next

    async def _find_tail(self) -> Tail:
        state = await self._store.stream.state(self.name)
        known = max(self._acknowledged, state.log.next if state is not None else 0)
        tail = await self._store.stream.tail(self.name, known)
        if tail.damaged:
            raise StorageError(
                f"its newest rows, from number {tail.next} on, are damaged in JetStream",
                where=self.name,
                hint="Restore the stream from a node that has them",
            )
        return tail

    def _put(
        self,
        parts: list[_Part],
        expected: int | None,
        first: int | None,
        paused_until: int,
    ) -> Ticket | Commit | None:
        """Assign numbers to an append, queue it, and return its ticket.

        Without room, return what to wait for before the next try. Return None if the log's end is not known.
        """
        store = self._store
        with store.lock:
            store.check()
            if self._end is None:
                return None
            if store.waiting_bytes >= MAX_WAITING_BYTES and store.newest is not None:
                return store.newest
            end = self._assigned_end
            if expected is not None and expected != end:
                raise SequenceConflict(expected, end, where=self.name)
            start = at = end if first is None else first
            if start < end:
                raise SequenceConflict(start, end, where=self.name)
            rows = sum(rows for rows, *_ in parts)
            if start + rows > MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=self.name)
            commit = Commit()
            begin, pause_end = end, min(max(end, paused_until), start)
            for i, (count, times, body) in enumerate(parts, 1):
                self._queue.append(
                    _Waiting(begin, pause_end, at, count, times, body, commit if i == len(parts) else None)
                )
                store.waiting_bytes += len(body)
                begin = pause_end = at = at + count
            self._assigned_end = at
            store.newest = commit
            if not self._sending:
                self._sending = True
                store.submit(self._send_all())
            return Ticket(start, at - 1, commit)

    async def _send_all(self) -> None:
        """Send what waits, until nothing does."""
        while True:
            with self._store.lock:
                if not self._queue:
                    self._sending = False
                    return
                waiting = self._queue[0]
            make_error: Callable[[], FastFlightError] | None = None
            try:
                end = await self._send(waiting)
            except _Refused as refused:
                make_error = refused.make
            except BaseException:
                self._fail(functools.partial(Stopped, "the recordings are closed", where=self.name))
                raise
            if make_error is not None:
                self._fail(make_error)
                return
            with self._store.lock:
                self._end, self._acknowledged = end, end.next
                self._queue.popleft()
                self._store.waiting_bytes -= len(waiting.body)
            if waiting.commit is not None:
                waiting.commit.finish()

    def _fail(self, make_error: Callable[[], FastFlightError]) -> None:
        """Fail all that waits: rows that were numbered after these cannot be stored without them."""
        with self._store.lock:
            failed = list(self._queue)
            self._queue.clear()
            self._store.waiting_bytes -= sum(len(waiting.body) for waiting in failed)
            self._sending, self._end = False, None
        for waiting in failed:
            if waiting.commit is not None:
                waiting.commit.finish(make_error)

    async def _send(self, waiting: _Waiting) -> _End:
        """Store one message after the last one, and return the new end."""
        end = self._end
        assert end is not None
        if end.token > self.token:
            raise _Refused(self._taken_over)
        record = Record(self._number, end.seq, self.token, *waiting[:4], *waiting.times, end.totals, waiting.body)
        message = encode_record(record)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                seq = await self._store.stream.publish(self._subject, message, end.seq)
                if seq is None:
                    seq = await self._find_sent(record, message)
                return _End(seq, record.next, record.totals, record.token)
            except FastFlightError as error:
                # After a TransportError the message may be stored: sent again, it is refused and then found.
                if not isinstance(error, TransportError) or time.monotonic() > deadline:
                    make = functools.partial(type(error), error.what, where=self.name, hint=error.hint)
                    raise _Refused(make) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _find_sent(self, record: Record, message: bytes) -> int:
        """Return the sequence number of a message that was refused because it is stored already.

        Raise `_Refused` if another one is the last.
        """
        tail = await self._find_tail()
        if tail.record is not None and encode_record(tail.record) == message:
            return tail.seq
        if tail.record is not None and tail.record.token > self.token:
            raise _Refused(self._taken_over)
        raise _Refused(functools.partial(SequenceConflict, record.begin, tail.next, where=self.name))

    def _taken_over(self) -> FastFlightError:
        return BusyError("another server records it now", where=self.name, hint="It has a newer lease of the device")


def _end_of(tail: Tail) -> _End:
    last = tail.record
    return _End(
        tail.seq, tail.next, last.totals if last is not None else Totals(), last.token if last is not None else 0
    )


class ReplicatedStore:
    """The logs in JetStream. Close it before its shard."""

    def __init__(
        self,
        connection: ClusterConnection,
        shard: Shard,
        fleet: str = "fleet",
        *,
        replicas: int = 1,
        retention: Retention | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fleet` is whose recordings these are. A new stream has `replicas` copies of each message."""
        self.stream = LogStream(connection, fleet, replicas)
        # Guards the queues of all logs, and what follows.
        self.lock = threading.RLock()
        self.waiting_bytes = 0
        # The append that was queued last.
        self.newest: Commit | None = None
        self._shard = shard
        self._logs: dict[str, ReplicatedLog] = {}
        self._retention = RetentionCheck(retention or Retention(), clock, ticks)
        self._closed = False

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return self.call(self.stream.names())

    def open(self, name: str, schema: pa.Schema, *, token: int = 0) -> ReplicatedLog:
        """As `Store.open`. `token` is the fencing token of the lease that this server holds; it never gets smaller."""
        return self.call(self.aopen(name, schema, token=token))

    async def aopen(self, name: str, schema: pa.Schema, *, token: int = 0) -> ReplicatedLog:
        """As `open`, on the loop of the connection."""
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError("a log's name has 1 to 255 bytes", where=name[:MAX_NAME_BYTES])
        log = self._logs.get(name)
        if log is None:
            state = await self._create(LogState(0, 0, name, Codec(schema).message))
            log = self._logs.setdefault(name, ReplicatedLog(self, name, state))
        if not log.schema.equals(schema, check_metadata=True):
            raise RequestError("the log has another schema", where=name, hint="Give the new rows a log of their own")
        log.token = max(log.token, token)
        return log

    async def _create(self, initial: LogState) -> State:
        while (state := await self.stream.state(initial.name)) is None:
            await self.stream.put_state(initial, 0)
        return state

    def log(self, name: str) -> ReplicatedLog:
        """As `Store.log`."""
        if name in self._logs:
            return self._logs[name]
        state = self.call(self.stream.state(name))
        if state is None:
            raise UnknownName("no such recording", where=name, hint=nearest(name, self.names()))
        return self._logs.setdefault(name, ReplicatedLog(self, name, state))

    def sweep(self) -> int:
        """Delete the oldest messages that exceed the retention, and return about how many. Any server may call it."""
        self._retention.update()
        return self.call(self._sweep())

    async def _sweep(self) -> int:
        first, last, messages, size = await self.stream.bounds()
        until = first
        max_bytes, oldest = self._retention.max_bytes, self._retention.oldest()
        if max_bytes is not None and size > max_bytes:
            until += int((last - first + 1) * (size - max_bytes) / size) + 1
        if oldest is not None:
            until = max(until, await self.stream.first_since(oldest))
        if until - first <= (last - first) // SWEEP_PART:
            return 0
        # A log whose last message goes needs its next number elsewhere.
        for name in await self.stream.names():
            state = await self.stream.state(name)
            tail = await self.stream.tail(name, state.log.next) if state is not None else None
            if state is None or tail is None or tail.seq >= until or state.log.next >= tail.next:
                continue
            if not await self.stream.put_state(state.log._replace(next=tail.next), state.revision):
                return 0  # something else has changed it; the next call tries again
        await self.stream.purge(until)
        return until - first

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs on the loop of the connection."""
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop of the connection, and return its future."""
        return self._shard.submit(work)

    def check(self) -> None:
        """Raise `Stopped` if the store is closed."""
        if self._closed:
            raise Stopped("the recording log is closed", hint="Ask again when it is open")

    def close(self) -> None:
        """Wait for the appends that wait. `append` raises `Stopped` from then on."""
        with self.lock:
            self._closed = True
            waiting = [log._queue[-1].commit for log in self._logs.values() if log._queue]
        for commit in waiting:
            if commit is not None:
                commit.wait(None)

    def __enter__(self) -> ReplicatedStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
