"""Group commit: one thread writes the appends of all logs of a store, in one transaction for all that wait.

All appends that wait at one moment share one `Commit`: one transaction and one sync, whether they come from one board
or a thousand. With `sync_ms` 0 the thread writes as soon as an append waits; the
appends that arrive during a sync form the next group. Otherwise it writes a group `sync_ms` after its first append, or
earlier when `EAGER_BYTES` wait. When a group fails, all appends that were numbered after it fail too.

`call` runs other work on the database, before the appends that wait, in a transaction of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from fastflight.errors import FastFlightError, Stopped, StorageError
from fastflight.log.bodies import TAIL_SCHEMA, arrays_of, numbers_of
from fastflight.log.database import Entry, prepare, seal
from fastflight.log.disk import PROBLEMS, LocalDisk, failure, has_no_room
from fastflight.log.reserve import Reserve
from fastflight.log.ticket import Commit, new_commit
from fastflight.log.values import Columns

T = TypeVar("T")

# `append` waits while this much data waits for the disk: one second for a disk that writes 64 MB/s.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A group of this size gains nothing from waiting for more.
EAGER_BYTES = 8 * 1024 * 1024
# A body has at most this many bytes, unless one append has more.
BODY_BYTES = 8 * 1024 * 1024
PUT_BODY = (
    "insert into bodies (id, log, ordinal, created, crc, bytes, file, data, schema) values (?, ?, ?, ?, ?, ?, ?, ?, 0)"
)


class LogKey(Protocol):
    """A log to write to."""

    id: int
    name: str
    first: int
    durable_end: int
    assigned_end: int


class Hole(NamedTuple):
    """What is missing before rows: the numbers `first` to `last`, if any, between two times (us UTC) if known.

    `bytes` is the size of the missing rows, if known.
    """

    first: int
    last: int
    why: str
    from_time: int | None = None
    to_time: int | None = None
    bytes: int | None = None


class AssignedRows(NamedTuple):
    """Rows of a log, as many as `length`, from the number `first` on, and their earliest and latest time."""

    log: LogKey
    first: int
    length: int
    times: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Append:
    """Rows to store: `content` has those of `parts`, one after another, in about so many bytes.

    With them come the holes before them, each with the number of its log.
    """

    content: pa.RecordBatch | Columns
    parts: Sequence[AssignedRows]
    holes: Sequence[tuple[int, Hole]]
    bytes: int


class Writer:
    """The appends that wait, and the thread that writes them. `changed` guards both."""

    def __init__(
        self,
        disk: LocalDisk,
        reserve: Reserve,
        sync_ms: float,
        clock: Callable[[], float],
    ) -> None:
        """Open the database, and create it if it is missing. Raises `PROBLEMS`."""
        self.changed = threading.Condition()
        self.waiting_bytes = 0
        self.commits = 0
        self.failed = 0
        self._connection = disk.connect(writing=True)
        try:
            prepare(self._connection)
            (newest,) = self._connection.execute(
                "select max(coalesce((select max(seq) from sqlite_sequence where name = 'bodies'), 0),"
                " coalesce((select max(+id) from bodies indexed by bodies_by_ordinal), 0))"
            ).fetchone()
        except BaseException:
            self._connection.close()
            raise
        # The numbers of deleted bodies are not used again, because a reader may still know them.
        self._numbers = itertools.count(int(newest) + 1)
        # When the disk had no room for a group (seconds since 1970); None after one that was stored.
        self.full_since: float | None = None
        self._reserve = reserve
        self._seconds = sync_ms / 1000
        self._clock = clock
        self._items: list[Append] = []
        # The group that new appends join, and the group that is being written.
        self._commit = new_commit()
        self._running: Commit | None = None
        # Other work for the thread, each with a future for its result.
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._due = 0.0
        self._closing = False
        # `close` waits for it. A disk that never answers must not keep the process for ever.
        self._thread = threading.Thread(target=self._run, name=f"log-{disk.folder.name}", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self.waiting_bytes < MAX_WAITING_BYTES

    def room(self) -> Commit | None:
        """Return None if there is room, else the commit to wait for before the next try. `changed` must be held."""
        self.check()
        if self.has_room:
            return None
        return self._commit if self._items else self._running

    def check(self) -> None:
        """Raise `Stopped` if the writer is closed."""
        if self._closing:
            raise Stopped("the recording log is closed", hint="Ask again when it is open")

    def put(self, item: Append) -> Commit:
        """Queue an append, and return the commit of its group. `changed` must be held."""
        if not self._items:
            self._due = time.monotonic() + self._seconds
            self.changed.notify_all()
        self._items.append(item)
        before = self.waiting_bytes
        self.waiting_bytes += item.bytes
        if before < EAGER_BYTES <= self.waiting_bytes:
            self.changed.notify_all()
        return self._commit

    def call(self, work: Callable[[sqlite3.Connection], T], *, uses_reserve: bool = False) -> T:
        """Return the result of `work`, which the thread calls in a transaction, before the appends that wait.

        With `uses_reserve`, free the reserve if the disk has no room, and call it again.
        """
        return self._queue(lambda: self._do(work, uses_reserve))

    def checkpoint(self) -> None:
        """Move SQLite's log of changes into the tables, and give its room back to the disk."""
        self._queue(self._checkpoint)

    def _queue(self, work: Callable[[], T]) -> T:
        result: Future[T] = Future()
        with self.changed:
            self.check()
            self._jobs.append((work, result))
            self.changed.notify_all()
        return result.result()

    def new_body(self) -> int:
        """Return the number of a new body. From any thread."""
        return next(self._numbers)

    def end(self) -> None:
        """Write what waits, and end the thread."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._thread.join()

    def close(self) -> None:
        """As `end`, and close the database."""
        self.end()
        self._connection.close()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._ready():
                    self.changed.wait(max(self._due - time.monotonic(), 0) if self._items else None)
                job = self._jobs.popleft() if self._jobs else None
                if job is None:
                    if not self._items:
                        return
                    items, self._items = self._items, []
                    commit, self._commit = self._commit, new_commit()
                    self._running = commit
            if job is not None:
                _run_job(*job)
            else:
                self._write_group(items, commit)
                del items  # else they stay in memory until the next group

    def _ready(self) -> bool:
        if self._closing or self._jobs:
            return True
        return bool(self._items) and (self.waiting_bytes >= EAGER_BYTES or time.monotonic() >= self._due)

    def _do(self, work: Callable[[sqlite3.Connection], T], uses_reserve: bool) -> T:
        try:
            return self._transact(work)
        except PROBLEMS as error:
            if not (uses_reserve and has_no_room(error) and self._reserve.release()):
                raise
        self._checkpoint()
        return self._transact(work)

    def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        connection.execute("begin immediate")
        try:
            result = work(connection)
            if connection.in_transaction:  # else `work` has rolled it back
                connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return result

    def _write_group(self, items: list[Append], commit: Commit) -> None:
        error: Exception | None = None
        try:
            self._transact(lambda connection: self._store(connection, items))
        except Exception as problem:  # the thread's edge: waiters must get an error, whatever went wrong
            error = problem.with_traceback(None)  # the frames of a traceback would keep the group in memory
        with self.changed:
            self._running = None
            if error is None:
                self.full_since = None
                self.waiting_bytes -= sum(item.bytes for item in items)
                self.commits += 1
                for part in _parts(items):
                    part.log.durable_end = part.first + part.length
                later = None
            else:
                # Appends that were numbered after these rows cannot be stored without them.
                later, self._commit = self._commit, new_commit()
                refused = [*_parts((*items, *self._items))]
                self.failed += len(refused)
                if has_no_room(error) and self.full_since is None:
                    self.full_since = self._clock()
                for part in refused:
                    part.log.assigned_end = part.log.durable_end
                self._items, self.waiting_bytes = [], 0
            self.changed.notify_all()
        make_error = _error_factory(error) if error is not None else None
        commit.set_result(make_error)
        if later is not None:
            later.set_result(make_error)

    def _store(self, connection: sqlite3.Connection, items: Sequence[Append]) -> None:
        for log in {part.log.id: part.log for part in _parts(items) if not part.log.durable_end}.values():
            # A log without rows may be new.
            row = (log.id, log.name, log.first, log.durable_end)
            connection.execute("insert or ignore into logs (id, name, first, next, schema) values (?, ?, ?, ?, 0)", row)
        holes = [(log, *hole) for each in items for log, hole in each.holes]
        connection.executemany("insert into gaps values (?, ?, ?, ?, ?, ?, ?)", holes)
        for group in _groups(items):
            data = memoryview(_joined(group).serialize())
            body, at, entries = self.new_body(), 0, []
            total = sum(part.length for part in _parts(group))
            for part in _parts(group):
                size = max(1, len(data) * part.length // total)
                entries.append((part.log.id, Entry(part.first, part.length, *part.times, body, at, size)))
                at += part.length
            put_body(connection, body, None, body, int(self._clock() * 1e6), data, None)
            put_entries(connection, entries)


def _run_job(work: Callable[[], Any], result: Future[Any]) -> None:
    try:
        result.set_result(work())
    except Exception as problem:  # the thread's edge: the caller gets the error
        result.set_exception(_error_factory(problem.with_traceback(None))())


def _parts(appends: Iterable[Append]) -> Iterator[AssignedRows]:
    return (part for each in appends for part in each.parts)


def _groups(appends: Iterable[Append]) -> Iterator[list[Append]]:
    """Yield appends that fit into a body."""
    group: list[Append] = []
    size = 0
    for each in appends:
        if group and size + each.bytes > BODY_BYTES:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.bytes
    yield group


def _joined(appends: Sequence[Append]) -> pa.RecordBatch:
    """Return the rows of all `appends` as a body has them."""
    parts = [*_parts(appends)]
    lengths = [part.length for part in parts]
    logs = np.repeat(np.array([part.log.id for part in parts], np.int32), lengths)
    numbers = numbers_of([part.first for part in parts], lengths)
    return pa.RecordBatch.from_arrays(
        [pa.array(logs), pa.array(numbers), *arrays_of([each.content for each in appends])], schema=TAIL_SCHEMA
    )


def put_body(
    connection: sqlite3.Connection,
    number: int,
    log: int | None,
    ordinal: int,
    created: int,
    data: memoryview | bytes,
    file: str | None,
) -> None:
    """Insert a body: `data`, or the file of this name that has it."""
    row = (number, log, ordinal, created, crc32(data), len(data), file, None if file else data)
    connection.execute(PUT_BODY, row)


def put_entries(connection: sqlite3.Connection, entries: Iterable[tuple[int, Entry]]) -> None:
    """Insert entries with rows: the number of the log, and the entry without its seal."""
    rows = [(log, *entry[:7], seal(log, entry)) for log, entry in entries]
    connection.executemany("insert into batches values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _error_factory(error: Exception) -> Callable[[], FastFlightError]:
    if isinstance(error, PROBLEMS):
        return lambda: failure(error, "recording")
    if isinstance(error, FastFlightError):
        return lambda: error
    return lambda: StorageError(f"recording failed: {type(error).__name__}", hint="This is a defect: report it")
