"""Appends to one log in JetStream: numbers the rows, queues their messages, and sends one after the other.

Each message names the sequence number of the log's message before it, and JetStream refuses it if that is not the last
one. So rows are stored once and in order, even if an acknowledgement is lost and the message is sent again, and whoever
else writes. A batch that is too large for one message is stored as several; if that fails, the first ones may be
stored.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from fastflight.cluster.log_stream import LogStream, Tail, subject_of
from fastflight.cluster.record import HEADER_BYTES, Record, Totals, encode_record
from fastflight.errors import (
    BusyError,
    DataError,
    FastFlightError,
    RequestError,
    SequenceConflict,
    Stopped,
    StorageError,
    TransportError,
)
from fastflight.log import Ticket
from fastflight.log.committer import MAX_WAITING_BYTES, Commit
from fastflight.log.content import Codec, log_number
from fastflight.log.index import MAX_SEQ

T = TypeVar("T")

# A message may have 1 MB in NATS as it comes, headers included.
MAX_BODY_BYTES = 1_000_000 - HEADER_BYTES - 1024
# An append fails if NATS has not acknowledged it after this time. A new connection and a new leader take seconds each.
PATIENCE_SECONDS = 30.0
# Between two attempts to send a message.
RETRY_SECONDS = 0.2

# The rows of a part of a batch, their earliest and latest time, and their body.
Part = tuple[int, tuple[int, int], memoryview]


class Sending(Protocol):
    """What the writers of all logs share: `ReplicatedStore`. `lock` guards the queues and what follows it."""

    stream: LogStream
    lock: threading.RLock
    waiting_bytes: int
    # The append that was queued last.
    newest: Commit | None

    def check(self) -> None:
        """Raise `Stopped` if the store is closed."""

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop of the connection, and return its future."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `submit`, and cheaper, for a caller that needs no result."""


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


class LogWriter:
    """The appends to one log. Any thread may use it, but for what is said to run on the loop of the connection."""

    def __init__(self, store: Sending, name: str, codec: Codec) -> None:
        # The fencing token of the lease that this server holds for the device; 0: none is needed.
        self.token = 0
        # The number after the last row that was acknowledged to this store. JetStream may lose the end of a stream.
        self.acknowledged = 0
        self._store = store
        self._name = name
        self._codec = codec
        self._subject = subject_of(name)
        self._number = log_number(name)
        # None if it is not known: at first, and after an append that failed.
        self._end: _End | None = None
        self._assigned_end = 0
        self._queue: deque[_Waiting] = deque()
        self._sending = False

    @property
    def next_seq(self) -> int | None:
        """The number that the next row gets; None if it is not known: call `look`."""
        return self._assigned_end if self._end is not None else None

    def forget(self) -> None:
        """Look for the end of the log before the next append: another server may have written to it."""
        with self._store.lock:
            if not self._queue:
                self._end = None

    @property
    def last_commit(self) -> Commit | None:
        """The last append that waits. The caller holds the lock."""
        return self._queue[-1].commit if self._queue else None

    def encode(self, batch: pa.RecordBatch) -> list[Part]:
        """Return the rows of a batch as bodies of messages. `DataError` if they do not fit."""
        if not batch.num_rows:
            raise DataError("a batch without rows", where=self._name, hint="There is nothing to keep")
        return list(self._parts(batch))

    def _parts(self, batch: pa.RecordBatch) -> Iterator[Part]:
        body = self._codec.encode(batch)
        if len(body) <= MAX_BODY_BYTES:
            yield batch.num_rows, self._codec.times(batch), body
            return
        if batch.num_rows == 1:
            raise DataError(f"a row of {len(body)} bytes", where=self._name, hint=f"At most {MAX_BODY_BYTES} bytes")
        half = batch.num_rows // 2
        yield from self._parts(batch.slice(0, half))
        yield from self._parts(batch.slice(half))

    async def look(self) -> None:
        """Find the end of the log. On the loop of the connection."""
        end = _end_of(await self._find_tail())
        with self._store.lock:
            if self._end is None and not self._queue:
                self._end, self._assigned_end = end, end.next

    async def _find_tail(self) -> Tail:
        _, tail = await self._store.stream.end(self._name)
        if tail.damaged:
            raise StorageError(
                f"its newest rows, from number {max(tail.next, self.acknowledged)} on, are damaged in JetStream",
                where=self._name,
                hint="Restore the stream from a node that has them",
            )
        return tail._replace(next=max(tail.next, self.acknowledged))

    def put(
        self,
        parts: list[Part],
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
                raise SequenceConflict(expected, end, where=self._name)
            start = at = end if first is None else first
            if start < end:
                raise SequenceConflict(start, end, where=self._name)
            rows = sum(rows for rows, *_ in parts)
            if start + rows > MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=self._name)
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
                store.start(self._send_all)
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
                self._fail(functools.partial(Stopped, "the recordings are closed", where=self._name))
                raise
            if make_error is not None:
                self._fail(make_error)
                return
            with self._store.lock:
                self._end, self.acknowledged = end, end.next
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
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            record = Record(self._number, end.seq, self.token, *waiting[:4], *waiting.times, end.totals, waiting.body)
            message = encode_record(record)
            try:
                seq = await self._store.stream.publish(self._subject, message, end.seq)
                if seq is None:
                    tail = await self._find_refused(record, message)
                    seq = tail.seq
                    if tail.record is None:  # the messages before it were compacted or deleted: send it again
                        end = end._replace(seq=0)
                        continue
                return _End(seq, record.next, record.totals, record.token)
            except FastFlightError as error:
                # After a TransportError the message may be stored: sent again, it is refused and then found.
                if not isinstance(error, TransportError) or time.monotonic() > deadline:
                    make = functools.partial(type(error), error.what, where=self._name, hint=error.hint)
                    raise _Refused(make) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _find_refused(self, record: Record, message: bytes) -> Tail:
        """Return the end of the log, if `message` was refused because it is stored, or because none is left.

        Raise `_Refused` if another one is the last.
        """
        tail = await self._find_tail()
        if tail.record is None and record.previous and tail.next == record.begin:
            return tail
        if tail.record is not None and encode_record(tail.record) == message:
            return tail
        if tail.record is not None and tail.record.token > self.token:
            raise _Refused(self._taken_over)
        raise _Refused(functools.partial(SequenceConflict, record.begin, tail.next, where=self._name))

    def _taken_over(self) -> FastFlightError:
        return BusyError("another server records it now", where=self._name, hint="It has a newer lease of the device")


def _end_of(tail: Tail) -> _End:
    last = tail.record
    return _End(
        tail.seq, tail.next, last.totals if last is not None else Totals(), last.token if last is not None else 0
    )
