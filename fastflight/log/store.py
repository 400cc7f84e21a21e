"""The embedded engine: stores all logs of a folder in one SQLite database, and older rows in Parquet files beside it.

The rows that all logs append at one moment are one body of the database and one transaction. So a thousand boards cost
one sync (docs/decisions/0013-the-recording-log.md has the figures). `database` describes the tables.

A folder has one `Store`, which writes; a `StoreReader` can read at the same time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from fastflight.errors import DataError, RequestError, SequenceConflict, UnknownName, nearest
from fastflight.gap import Gap, Why, microseconds
from fastflight.log.bodies import BodyCodec, NewRows
from fastflight.log.compaction import NewBody
from fastflight.log.content import MAX_BODY_BYTES, MAX_NAME_BYTES, Codec
from fastflight.log.database import Database, read_schema
from fastflight.log.disk import LocalDisk, failure, has_no_room, make_private
from fastflight.log.leftovers import remove_leftovers
from fastflight.log.lock import LOCK_NAME, FileLock
from fastflight.log.reading import Bounds, Content, mapped
from fastflight.log.reserve import Reserve
from fastflight.log.retention import Retention, RetentionCheck, end_of_first
from fastflight.log.store_reader import LogReader
from fastflight.log.ticket import Commit, Ticket
from fastflight.log.values import MAX_SEQ, Columns, StoreStatistics
from fastflight.log.writer import Append, Hole, Item, Trim, Writer, put_body, put_entries

# By default an append waits at most this long for a sync. A power cut can cost the rows of this time.
SYNC_MS = 100.0
MARK_END = "update logs set complete_to = coalesce(max(complete_to, ?1), complete_to, ?1), ended = ?2 where id = ?3"
# Bodies that one transaction deletes.
DELETED_AT_ONCE = 64


class Log(LogReader):
    """One log of a `Store`. Any thread may use it.

    It has many readers but only one writer at a time: a second writer notices the first one by the `expected` number.
    """

    def __init__(self, store: Store, number: int, name: str, codec: BodyCodec, first: int, following: int) -> None:
        super().__init__(store, number, name, codec)
        # The first number that is not trimmed.
        self.first = first
        # The number after the last durable row.
        self.durable_end = following
        # The number after the last row of the appends that wait.
        self.assigned_end = following
        self._store = store

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""
        return self.assigned_end

    def append(
        self,
        rows: pa.RecordBatch | Columns,
        *,
        expected: int | None = None,
        first: int | None = None,
        paused_until: int = 0,
        gap: Gap | None = None,
    ) -> Ticket:
        """Append `rows`, and return a ticket. Waits only while too much data already waits for the disk.

        `expected` is the number that the caller takes for `next_seq`. `first` is the number of the first row, if it
        is larger than `next_seq`: the numbers left out are missing, and count as lost. Those of them below
        `paused_until` are unused, which is no gap. `gap` says why rows are missing before these, and between which
        times, also if no number is left out; its numbers are not looked at.

        Raises `SequenceConflict`, and appends nothing, if `expected` is not `next_seq` or `first` is below it, and
        `DataError` for a batch that does not fit the log. The values of columns are not looked at, but for their times.
        """
        new = self._measured(rows)
        while True:
            ticket = self._store.queue_append(self, *new, expected, first, paused_until, gap)
            if isinstance(ticket, Ticket):
                return ticket
            ticket.wait(None)

    async def aappend(
        self,
        rows: pa.RecordBatch | Columns,
        *,
        expected: int | None = None,
        first: int | None = None,
        paused_until: int = 0,
        gap: Gap | None = None,
    ) -> Ticket:
        """As `append`, on an event loop, which goes on while this waits."""
        new = self._measured(rows)
        while True:
            ticket = self._store.queue_append(self, *new, expected, first, paused_until, gap)
            if isinstance(ticket, Ticket):
                return ticket
            await ticket.await_end()

    def trim(self, before_seq: int) -> Ticket:
        """Delete the rows before a number. Reading does not return them again; their disk space is freed later.

        The ticket is done when the deletion is durable.
        """
        return self._store.trim(self, before_seq)

    def _measured(self, rows: pa.RecordBatch | Columns) -> tuple[pa.RecordBatch | Columns, int, tuple[int, int], int]:
        """Return rows, their number, their earliest and latest time, and about how many bytes they have."""
        if not isinstance(rows, pa.RecordBatch):
            times = rows[self.codec.time_index]
            return rows, len(times), (min(times), max(times)), self.codec.size_of(rows)
        if not rows.num_rows:
            raise DataError("a batch without rows", where=self.name, hint="There is nothing to keep")
        self.codec.content.check(rows)
        if rows.nbytes > MAX_BODY_BYTES:
            raise DataError(
                f"the batch has {rows.nbytes} bytes", hint=f"At most {MAX_BODY_BYTES}: append it in smaller ones"
            )
        return rows, rows.num_rows, self.codec.content.times(rows), rows.nbytes


class Store:
    """Logs by name, in one folder. Close it, or use it as a context manager."""

    def __init__(
        self,
        folder: str | Path,
        *,
        sync_ms: float = SYNC_MS,
        retention: Retention | None = None,
        holder: str = "",
        disk: LocalDisk | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open `folder` to write, and create it if it is missing.

        `sync_ms` is how long an append may wait for others, to share a sync with them; with 0 it does not wait.
        `holder` is the name that other writers get in their `BusyError`. `clock` is the time of day, which may be set,
        and `ticks` a monotonic clock.

        Raises `BusyError`, which names the other writer, if the folder has one, and `StorageError` if the disk fails.
        """
        folder = Path(folder)
        try:
            # Whether other users have no access to the folder.
            self.is_private = make_private(folder)
            self._lock = FileLock(folder / LOCK_NAME, holder)
        except OSError as error:
            raise failure(error, "opening the recordings") from error
        self.disk = disk if disk is not None else LocalDisk(folder)
        self._retention = RetentionCheck(retention or Retention(), clock, ticks)
        # Held by `sweep` and `compact`, which both remove bodies, so that only one of them runs at a time.
        self.maintenance_lock = threading.Lock()
        # Files that are being read by others than this store.
        self._held: Counter[str] = Counter()
        self._logs: dict[str, Log] = {}
        # Called with each group of appends that has become durable, by the thread that writes. It must not block.
        self.on_commit: Callable[[Sequence[Item]], object] = lambda items: None
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            try:
                self._reserve = Reserve(self.disk)
                self._writer = self._open_writer(sync_ms, clock)
                undo.callback(self._writer.close)
                self.content = Content(Database(self.disk))
                undo.callback(self.content.database.close)
                for row in self.content.database.logs():
                    codec = BodyCodec(Codec(read_schema(row.schema)))
                    self._logs[row.name] = Log(self, row.id, row.name, codec, row.first, row.next)
                self._newest_id = max((log.id for log in self._logs.values()), default=0)
                self._delete(remove_leftovers(self.disk, self.content.database), [])
            except (OSError, sqlite3.Error) as error:
                raise failure(error, "opening the recordings") from error
            undo.pop_all()
        self._reserve.fill()

    def _open_writer(self, sync_ms: float, clock: Callable[[], float]) -> Writer:
        try:
            return Writer(self.disk, self._reserve, self, sync_ms, clock)
        except sqlite3.Error as error:
            if not has_no_room(error) or not self._reserve.release():
                raise
        return Writer(self.disk, self._reserve, self, sync_ms, clock)

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        with self._writer.changed:
            return sorted(self._logs)

    def open(self, name: str, schema: pa.Schema) -> Log:
        """Return a log to append to, and create it if it does not exist. Its name is stored with its first rows.

        Raises `RequestError` if it exists with another schema, or the name is not valid.
        """
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError(f"a log's name has 1 to {MAX_NAME_BYTES} bytes", where=name[:MAX_NAME_BYTES])
        codec = BodyCodec(Codec(schema))
        with self._writer.changed:
            log = self._logs.get(name)
            if log is None:
                self._newest_id += 1
                log = self._logs[name] = Log(self, self._newest_id, name, codec, 0, 0)
            elif not log.schema.equals(schema, check_metadata=True):
                raise RequestError(
                    "the log has another schema", where=name, hint="Give the new rows a log of their own"
                )
            return log

    def log(self, name: str) -> Log:
        """Return an existing log. Raises `UnknownName` if there is none of that name."""
        log = self.find(name)
        if log is None:
            raise UnknownName("no such recording", where=name, hint=nearest(name, self.names()))
        return log

    def find(self, name: str) -> Log | None:
        """Return an existing log; None if there is none of that name."""
        with self._writer.changed:
            return self._logs.get(name)

    def beyond(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Return the logs that have durable rows from the number in `ends` on (0 for those not in it), and their ends.

        `on_commit` has been called for all of these rows.
        """
        with self._writer.changed:
            logs = self._logs.values()
            return {log.name: log.durable_end for log in logs if log.durable_end > ends.get(log.name, 0)}

    def statistics(self) -> StoreStatistics:
        """Return the present statistics of the store."""
        rows, size, files = mapped(self.content.database.totals)
        with self._writer.changed:
            return StoreStatistics(
                logs=len(self._logs),
                rows=rows,
                bytes=size,
                files=files,
                commits=self._writer.commits,
                failed=self._writer.failed,
                waiting_bytes=self._writer.waiting_bytes,
                damage=tuple(dict.fromkeys(self.content.damaged.values())),
            )

    def close(self) -> None:
        """Write the appends that wait, and close the store. `append` raises `Stopped` from then on.

        Waits for a running sweep or compaction, which stops at its next step.
        """
        self._writer.end()
        with self.maintenance_lock:
            self.content.database.close()
            self._writer.close()  # last, because then SQLite joins its files
            self._lock.close()

    def check(self) -> None:
        """Raise `Stopped` if the store is closed."""
        with self._writer.changed:
            self._writer.check()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def queue_append(
        self,
        log: Log,
        content: pa.RecordBatch | Columns,
        rows: int,
        times: tuple[int, int],
        size: int,
        expected: int | None,
        first: int | None,
        paused_until: int,
        gap: Gap | None,
    ) -> Ticket | Commit:
        """Assign numbers to an append, queue it, and return its ticket.

        If too much data waits for the disk, return the commit to wait for before the next call instead.
        """
        with self._writer.changed:
            if (busy := self._writer.room()) is not None:
                return busy
            end = log.assigned_end
            if expected is not None and expected != end:
                raise SequenceConflict(expected, end, where=log.name)
            start = end if first is None else first
            if start < end:
                raise SequenceConflict(start, end, where=log.name)
            last = start + rows - 1
            if last >= MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=log.name)
            holes: list[Hole] = []
            used = min(max(end, paused_until), start)
            if used > end:
                holes.append(Hole(end, used - 1, Why.UNUSED))
            if gap is not None:
                holes.append(Hole(used, start - 1, gap.why, microseconds(gap.from_time), microseconds(gap.to_time)))
            elif start > used:
                holes.append(Hole(used, start - 1, Why.NOT_READ))
            log.assigned_end = last + 1
            append = Append(log, NewRows(log.id, start, rows, content), times, size, holes)
            return Ticket(start, last, self._writer.put(append))

    def trim(self, log: Log, before_seq: int) -> Ticket:
        """Do what `Log.trim` says."""
        with self._writer.changed:
            self._writer.check()
            first = min(max(before_seq, log.first), log.assigned_end)
            return Ticket(first, first - 1, self._writer.put(Trim(log, first)))

    def sweep(self) -> int:
        """Delete the oldest rows that are trimmed or exceed the retention. Return how many bodies were deleted.

        Call it about once a minute. Nothing counts as too old until the clock has been steady for ten minutes in this
        process (see `retention`). This works on a full disk, too: files are deleted before anything is written, and
        what must be written has room in reserve.
        """
        with self.maintenance_lock:
            self.check()
            self._retention.update()
            files = dict([*mapped(self._trimmed), *mapped(self._expired)])
            self._delete(list(files), [name for name in files.values() if name])
            if files:
                self._writer.checkpoint()
            self._reserve.fill()
            return len(files)

    def _trimmed(self) -> list[tuple[int, str | None]]:
        """Return the bodies, and their files, of which all rows are trimmed."""
        with self.content.database.reading() as connection:
            found = connection.execute(
                "select body, file from batches join logs on logs.id = batches.log join bodies on bodies.id = body"
                " group by body having max(batches.first + rows - logs.first) <= 0"
            ).fetchall()
        return [(body, name) for body, name in found if not self._held[name]]

    def _expired(self) -> list[tuple[int, str | None]]:
        """Return the oldest bodies, and their files, that exceed the retention."""
        with self.content.database.reading() as connection:
            found = connection.execute("select id, file, created, bytes from bodies order by ordinal, id").fetchall()
        created = [each[2] for each in found]
        if self._writer.full_since is not None:
            created.append(int(self._writer.full_since * 1e6))
        size = sum(each[3] for each in found)
        oldest, most = self._retention.oldest(), self._retention.max_bytes
        expired: list[tuple[int, str | None]] = []
        for at, (body, name, _, its_size) in enumerate(found):
            is_old = oldest is not None and end_of_first(created[at:], self._retention.now) < oldest * 1e6
            if not is_old and (most is None or size <= most):
                break
            size -= its_size
            if not self._held[name]:
                expired.append((body, name))
        return expired

    def _delete(self, bodies: Sequence[int], files: Sequence[str]) -> None:
        """Delete bodies. Their rows, and all before them, are not served again, whatever fails here."""
        try:
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.remove(name)
        except OSError as error:
            raise failure(error, "deleting old recordings") from error
        for at in range(0, len(bodies), DELETED_AT_ONCE):
            chunk = bodies[at : at + DELETED_AT_ONCE]
            firsts = self._writer.call(lambda connection, chunk=chunk: _forget(connection, chunk), uses_reserve=True)  # type: ignore[misc]
            with self._writer.changed:
                for log in self._logs.values():
                    log.first = max(log.first, firsts.get(log.id, 0))

    def replace(self, bodies: Sequence[int], new: Sequence[NewBody]) -> list[str]:
        """Store `new`, which has the rows of `bodies`, in their place. Return the names of the new files.

        Raises `OSError` or `StorageError`, and changes nothing, if that fails.
        """
        numbers = [self._writer.new_body() for _ in new]
        files = [f"{number:012d}.parquet" if each.is_file else None for number, each in zip(numbers, new, strict=True)]

        def work(connection: sqlite3.Connection) -> None:
            _remove(connection, bodies)
            for number, name, each in zip(numbers, files, new, strict=True):
                data = each.data
                put_body(connection, number, each.schema, each.log, each.ordinal, each.created, data, name)
                put_entries(connection, [(each.log, entry._replace(body=number)) for entry in each.entries])

        made = [name for name in files if name is not None]
        try:
            for name, each in zip(files, new, strict=True):
                if name is not None:
                    self.disk.write(name, each.data)
            self._writer.call(work)
        except BaseException:
            for name in made:
                with contextlib.suppress(OSError):
                    self.disk.remove(name)
            raise
        return made

    def mark_end(self, ends: Mapping[int, int | None], why: str) -> None:
        """Store to which times (us UTC) logs, by number, are complete, and why they would not go on after that.

        With None, the time that is stored stays.
        """
        rows = [(time, why, log) for log, time in ends.items()]
        self._writer.call(lambda connection: connection.executemany(MARK_END, rows))

    def name_of(self, log: int) -> str:
        """Return the name of the log with this number."""
        with self._writer.changed:
            return next(each.name for each in self._logs.values() if each.id == log)

    def bounds(self, log: int, name: str) -> Bounds:
        """Return the present bounds of a log, with its durable rows only."""
        with self._writer.changed:
            return Bounds(self._logs[name].first, self._logs[name].durable_end)

    @contextlib.contextmanager
    def hold(self, names: list[str]) -> Iterator[None]:
        """Delete none of these files while the context lasts."""
        with self._writer.changed:
            self._held.update(names)
        try:
            yield
        finally:
            with self._writer.changed:
                self._held.subtract(names)
                self._held = +self._held

    def group_committed(self, items: Sequence[Item]) -> None:
        """Make a durable group visible to readers. The caller holds the writer's lock."""
        for item in items:
            log = self._logs[item.log.name]
            if isinstance(item, Trim):
                log.first = max(log.first, item.first)
            else:
                log.durable_end = item.rows.first + item.rows.rows
        self.on_commit(items)

    def group_failed(self) -> None:
        """Free the numbers of the appends that failed. The caller holds the writer's lock."""
        for log in self._logs.values():
            log.assigned_end = log.durable_end


def _remove(connection: sqlite3.Connection, bodies: Sequence[int]) -> None:
    # As JSON, because SQLite limits the parameters of a statement.
    chosen = (json.dumps(bodies),)
    connection.execute("delete from batches where body in (select value from json_each(?))", chosen)
    connection.execute("delete from bodies where id in (select value from json_each(?))", chosen)


def _forget(connection: sqlite3.Connection, bodies: Sequence[int]) -> dict[int, int]:
    """Delete bodies, and all that is before their rows. Return the first numbers of their logs."""
    found = connection.execute(
        "select log, max(first + rows) from batches where body in (select value from json_each(?)) group by log",
        (json.dumps(bodies),),
    ).fetchall()
    _remove(connection, bodies)
    ends = [{"log": log, "end": end} for log, end in found]
    connection.executemany("update logs set first = max(first, :end), next = max(next, :end) where id = :log", ends)
    connection.executemany("delete from gaps where log = :log and last < :end", ends)
    return dict(found)
