"""Group commit: one thread writes the appends of all logs of a store, in one transaction for all that wait.

All appends that wait at one moment share one `Commit`: one transaction and one sync, whether they come from one board
or a thousand. With `sync_ms` 0 the thread writes as soon as an append waits; the
appends that arrive during a sync form the next group. Otherwise it writes a group `sync_ms` after its first append, or
earlier when `EAGER_BYTES` wait. When a group fails, all appends that were numbered after it fail too.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from fastflight.errors import FastFlightError, Stopped, StorageError
from fastflight.log.bodies import TAIL_SCHEMA, joined, numbers_of
from fastflight.log.database import prepare, put_body, put_entries
from fastflight.log.disk import PROBLEMS, LocalDisk, failure, has_no_room, is_damage
from fastflight.log.values import Entry

if TYPE_CHECKING:
    from fastflight.log.log import Log

T = TypeVar("T")
# A group of appends that succeed or fail together. The result is the error if it has failed.
Commit: TypeAlias = Future[Exception | None]

# `append` waits while this much data waits for the disk: one second for a disk that writes 64 MB/s.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# A group of this size gains nothing from waiting for more.
EAGER_BYTES = 8 * 1024 * 1024
# A body has at most this many bytes, unless one append has more.
BODY_BYTES = 8 * 1024 * 1024


def new_commit() -> Commit:
    """Return a commit whose `set_result` its writer calls once. Nobody can cancel it."""
    commit: Commit = Future()
    commit.set_running_or_notify_cancel()
    return commit


class Ticket:
    """An append that was refused, or may still wait for the disk. It happens even if nobody waits for its ticket."""

    __slots__ = ("_commit", "first", "last")

    def __init__(self, first: int, last: int, commit: Commit) -> None:
        # The numbers that the first and the last row get if the append succeeds. A refused one has none.
        self.first = first
        self.last = last
        self._commit = commit

    @property
    def done(self) -> bool:
        """Whether the append has ended, so that `result` returns or raises at once."""
        return self._commit.done()

    def result(self, timeout: float | None = None) -> None:
        """Wait until the rows are durable.

        Raises why the append was refused, `StorageError` if it failed, and `TimeoutError` if it has not ended after
        `timeout` seconds.
        """
        try:
            problem = self._commit.result(timeout)
        except TimeoutError:
            raise TimeoutError("the disk has not answered yet") from None
        if isinstance(problem, FastFlightError):
            raise problem
        if isinstance(problem, PROBLEMS):
            raise failure(problem, "recording")
        if problem is not None:
            kind = type(problem).__name__
            raise StorageError(f"recording failed: {kind}", hint="This is a defect: report it")


def refused(error: FastFlightError) -> Ticket:
    """Return the ticket of an append that was refused."""
    commit = new_commit()
    commit.set_result(error)
    return Ticket(0, -1, commit)


class Append(NamedTuple):
    """Rows to store, and entries in their order: of rows, whose body is not known yet, and of what is missing."""

    rows: pa.RecordBatch
    entries: Sequence[tuple[Log, Entry]]
    bytes: int


class Writer:
    """The appends that wait, and the thread that writes them. `changed` guards both."""

    def __init__(self, disk: LocalDisk, sync_ms: float, clock: Callable[[], float]) -> None:
        """Open the database, and create it if it is missing. Raises `PROBLEMS`."""
        self.changed = threading.Condition()
        self.waiting_bytes = 0
        self.commits = 0
        # Whether a damaged page was found.
        self.is_damaged = False
        self._disk = disk
        self._connection = disk.connect(writing=True)
        # Held for each use of the connection, from any thread.
        self._writing = threading.Lock()
        try:
            prepare(self._connection)
            (newest,) = self._connection.execute("select max(seq) from sqlite_sequence").fetchone()
        except BaseException:
            self._connection.close()
            raise
        # The numbers of deleted bodies are not used again, because a reader may still know them.
        self._numbers = itertools.count(int(newest or 0) + 1)
        # When the disk had no room for a group (seconds since 1970); None after one that was stored.
        self.full_since: float | None = None
        self._seconds = sync_ms / 1000
        self._clock = clock
        self._items: list[Append] = []
        # The group that new appends join, and the group that is being written.
        self._commit = new_commit()
        self._running: Commit | None = None
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
        """Return the result of `work`, which is called in a transaction of its own. Raises `StorageError`.

        With `uses_reserve`, free the reserve if the disk has no room, and call it again.
        """
        with self._writing:
            self.check()
            try:
                try:
                    return self._transact(work)
                except PROBLEMS as error:
                    if not (uses_reserve and has_no_room(error) and self._disk.release_reserve()):
                        raise
                self._checkpoint()
                return self._transact(work)
            except PROBLEMS as error:
                self.is_damaged = self.is_damaged or is_damage(error)
                raise failure(error, "recording") from error

    def checkpoint(self) -> None:
        """Move SQLite's log of changes into the tables, and give its room back to the disk."""
        with self._writing:
            self.check()
            self._checkpoint()

    def reopen(self) -> None:
        """Open the database anew: a connection that has met a damaged page writes nothing any more."""
        with self._writing:
            self.check()
            self._connection.close()
            self._connection = self._disk.connect(writing=True)
            prepare(self._connection)

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
        with self._writing:
            self._connection.close()

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._is_due():
                    self.changed.wait(max(self._due - time.monotonic(), 0) if self._items else None)
                if not self._items:
                    return
                items, self._items = self._items, []
                commit, self._commit = self._commit, new_commit()
                self._running = commit
            self._write_group(items, commit)
            del items  # else they stay in memory until the next group

    def _is_due(self) -> bool:
        if self._closing:
            return True
        return bool(self._items) and (self.waiting_bytes >= EAGER_BYTES or time.monotonic() >= self._due)

    def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        connection.execute("begin immediate")
        try:
            result = work(connection)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return result

    def _write_group(self, items: list[Append], commit: Commit) -> None:
        error: Exception | None = None
        try:
            with self._writing:
                self._transact(lambda connection: self._store(connection, items))
        except Exception as problem:  # the thread's edge: waiters must get an error, whatever went wrong
            error = problem.with_traceback(None)  # the frames of a traceback would keep the group in memory
            self.is_damaged = self.is_damaged or is_damage(error)
        failed: list[Commit] = []
        with self.changed:
            self._running = None
            if error is None:
                self.full_since = None
                self.waiting_bytes -= sum(item.bytes for item in items)
                self.commits += 1
                for log, entry in _of_rows(items):
                    log.durable_end = entry.end
            else:
                # Appends that were numbered after these rows cannot be stored without them.
                if has_no_room(error) and self.full_since is None:
                    self.full_since = self._clock()
                for log, _ in _of_rows((*items, *self._items)):
                    log.next_seq = log.durable_end
                self._items, self.waiting_bytes = [], 0
                failed.append(self._commit)
                self._commit = new_commit()
            self.changed.notify_all()
        for each in (commit, *failed):
            each.set_result(error)

    def _store(self, connection: sqlite3.Connection, items: Sequence[Append]) -> None:
        for log in {log.id: log for log, _ in _of_rows(items) if not log.durable_end}.values():
            # A log without rows may be new.
            row = (log.id, log.name, log.first, log.durable_end)
            connection.execute("insert or ignore into logs (id, name, first, next) values (?, ?, ?, ?)", row)
        put_entries(connection, ((log.id, entry) for each in items for log, entry in each.entries if entry.why))
        for group in _groups(items):
            rows = _joined(group)
            data = memoryview(rows.serialize())
            body, at, entries = self.new_body(), 0, []
            for log, entry in _of_rows(group):
                size = max(1, len(data) * entry.rows // rows.num_rows)
                first, count, first_time, last_time, *_ = entry
                entries.append((log.id, Entry(first, count, first_time, last_time, body, at, size)))
                at += count
            put_body(connection, body, None, body, int(self._clock() * 1e6), data)
            put_entries(connection, entries)


def _of_rows(appends: Iterable[Append]) -> Iterator[tuple[Log, Entry]]:
    return ((log, entry) for each in appends for log, entry in each.entries if not entry.why)


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
    parts = [*_of_rows(appends)]
    lengths = [entry.rows for _, entry in parts]
    logs = np.repeat(np.array([log.id for log, _ in parts], np.int32), lengths)
    numbers = numbers_of([entry.first for _, entry in parts], lengths)
    rows = joined([each.rows for each in appends])
    return pa.RecordBatch.from_arrays([pa.array(logs), pa.array(numbers), *rows.columns], schema=TAIL_SCHEMA)
