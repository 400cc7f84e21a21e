"""The embedded engine: stores all logs of a folder in one SQLite database, and older rows in Parquet files beside it.

The rows that all logs append at one moment are one body of the database and one transaction. So a thousand boards cost
one sync (docs/decisions/0013-the-recording-log.md has the figures). `database` describes the tables.

A folder has one `Store`, which writes; a `StoreReader` can read at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa
import structlog

from fastflight.errors import FastFlightError, RequestError, StorageError, UnknownName, nearest
from fastflight.files import FileLock
from fastflight.gap import Gap
from fastflight.log.bodies import check, entries_of, joined, times_of
from fastflight.log.compaction import NewBody
from fastflight.log.database import (
    BodyPosition,
    BodyRow,
    Database,
    breaks_in,
    delete_bodies,
    delete_entries,
    put_body,
    put_entries,
)
from fastflight.log.disk import PROBLEMS, LocalDisk, failure, has_no_room, make_private
from fastflight.log.leftovers import remove_leftovers
from fastflight.log.log import Log, NewRows
from fastflight.log.reading import Content, Gone, gap_of
from fastflight.log.repair import repair
from fastflight.log.retention import Retention, RetentionCheck, end_of_first
from fastflight.log.values import Entry
from fastflight.log.writer import Append, Commit, Ticket, Writer, refused

log = structlog.get_logger(__name__)

LOCK_NAME = "writer.lock"
# Of a database that is damaged again after so many repairs, this process makes no new tables.
MAX_REPAIRS = 3
# By default an append waits at most this long for a sync. A power cut can cost the rows of this time.
SYNC_MS = 100.0
# A log is named after a device, in a cluster also after the server that recorded it.
MAX_NAME_BYTES = 384
MARK_END = "update logs set complete_to = coalesce(max(complete_to, ?1), complete_to, ?1), ended = ?2 where id = ?3"
_ENDS = "select log, max(first + rows) from entries where body = ? group by log"
_GAPS = """
select log, first, rows, first_time, last_time, body, at, bytes, why from json_each(?) as wanted join entries
on log = json_extract(wanted.value, '$[0]') and why <> ''
    and first between json_extract(wanted.value, '$[1]') and json_extract(wanted.value, '$[2]') order by 1, 2, 3
"""
# Bodies that one transaction deletes.
DELETED_AT_ONCE = 64


class StoredBody(NamedTuple):
    """A body and its position. Its rows have the numbers of their logs; None if they are damaged, or the error of
    reading them.
    """

    position: BodyPosition
    rows: pa.RecordBatch | StorageError | None


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
        self._repairs = 0
        self._logs: dict[str, Log] = {}
        # By the numbers of the logs.
        self._names: dict[int, str] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            try:
                self._writer = self._open_writer(sync_ms, clock)
                undo.callback(self._writer.close)
                self.content = Content(Database(self.disk))
                undo.callback(self.content.database.close)
                try:
                    self._load()
                except StorageError:
                    if not self._repaired():
                        raise
                    self._load()
            except PROBLEMS as error:
                raise failure(error, "opening the recordings") from error
            undo.pop_all()
        self.disk.fill_reserve()

    def _open_writer(self, sync_ms: float, clock: Callable[[], float]) -> Writer:
        try:
            return Writer(self.disk, sync_ms, clock)
        except sqlite3.Error as error:
            if not has_no_room(error) or not self.disk.release_reserve():
                raise
        return Writer(self.disk, sync_ms, clock)

    def _load(self) -> None:
        self._logs = {row.name: Log(self, *row) for row in self.content.database.logs()}
        self._names = {log.id: name for name, log in self._logs.items()}
        self._newest_id = max(self._names, default=0)
        self._delete(remove_leftovers(self.disk, self.content), [])

    def _repaired(self) -> bool:
        """Make the tables anew if a damaged page was found in them, and return whether that was so."""
        database, writer = self.content.database, self._writer
        if not (database.is_damaged or writer.is_damaged) or self._repairs == MAX_REPAIRS:
            return False
        self._repairs += 1
        database.is_damaged = writer.is_damaged = False
        log.error("the database of the recordings is damaged: its tables are made anew", folder=self.disk.folder.name)
        try:
            writer.reopen()
        except PROBLEMS as error:
            raise failure(error, "repairing the recordings") from error
        writer.call(lambda connection: repair(connection, self.disk))
        return True

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        with self._writer.changed:
            return sorted(self._logs)

    def open(self, name: str) -> Log:
        """Return a log to append to, and create it if it does not exist. Its name is stored with its first rows.

        Raises `RequestError` if the name is not valid.
        """
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError(f"a log's name has 1 to {MAX_NAME_BYTES} bytes", where=name[:MAX_NAME_BYTES])
        with self._writer.changed:
            log = self._logs.get(name)
            if log is None:
                self._newest_id += 1
                log = self._logs[name] = Log(self, self._newest_id, name)
                self._names[log.id] = name
            return log

    def append(self, rows: pa.RecordBatch, parts: Sequence[NewRows]) -> list[Ticket]:
        """Append the rows of several logs: `rows` has those of `parts`, one after another.

        Return a ticket for each part. Parts may be refused, as `Log.append` does. Does not wait while too much data
        waits for the disk: call `wait_for_room` or `await_room` before.

        Raises `DataError` for a batch that does not fit a log, and `Stopped` if the store is closed.
        """
        check(rows)
        times = times_of(rows, [part.length for part in parts])
        entries: list[tuple[Log, Entry]] = []
        accepted: list[tuple[int, int]] = []
        found: list[FastFlightError | Entry] = []
        at = 0
        with self._writer.changed:
            self._writer.check()
            for part, its_times in zip(parts, times, strict=True):
                try:
                    its_entries = part.log.assign(part, its_times)
                except FastFlightError as error:
                    found.append(error)
                else:
                    found.append(its_entries[-1])
                    entries += [(part.log, entry) for entry in its_entries]
                    accepted.append((at, part.length))
                at += part.length
            if accepted:
                whole = len(accepted) == len(parts)
                rows = rows if whole else joined([rows.slice(*place) for place in accepted])
                commit = self._writer.put(Append(rows, entries, int(rows.nbytes)))
        return [
            Ticket(each.first, each.end - 1, commit) if isinstance(each, Entry) else refused(each) for each in found
        ]

    def wait_for_room(self) -> None:
        """Wait while too much data waits for the disk. Raises `Stopped` if the store is closed."""
        while (busy := self._room()) is not None:
            busy.result()

    async def await_room(self) -> None:
        """As `wait_for_room`, on an event loop."""
        while (busy := self._room()) is not None:
            await asyncio.wrap_future(busy)

    @property
    def has_room(self) -> bool:
        """Whether `append` may be called. It raises an error by itself if the store is closed."""
        return self._writer.has_room

    def _room(self) -> Commit | None:
        with self._writer.changed:
            return self._writer.room()

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

    def bodies_after(self, position: BodyPosition, max_bytes: int) -> list[StoredBody]:
        """Return the next bodies after a position: at least one, if there is one.

        They end before one that cannot be read. If that is the first, it is returned alone.
        """
        found: list[StoredBody] = []
        size = 0
        for place in self.content.database.positions(position):
            if found and size >= max_bytes:
                break
            try:
                body = self.content.body(place.id)
            except Gone:
                if not self.content.place(place.id):
                    continue  # retention has deleted the body, or a compaction has replaced it
                problem = StorageError("a file with recorded rows is missing", hint="Look at the disk of the host")
                return found or [StoredBody(place, problem)]
            except StorageError as error:
                return found or [StoredBody(place, error)]
            rows = None if body is None else body.keyed
            found.append(StoredBody(place, rows))
            size += 0 if rows is None else int(rows.nbytes)
        return found

    def ends(self, body: BodyPosition) -> dict[str, int]:
        """Return the names of the logs with rows in a body, and the number of each after its last one there."""
        found = dict(self.content.database.rows(_ENDS, (body.id,)))
        return {name: found[log.id] for name in self.names() if (log := self.log(name)).id in found}

    def position_before(self, ends: Mapping[str, int]) -> BodyPosition:
        """Return the position before the first rows of any log that are beyond its number in `ends`."""
        logs = [self.log(name) for name in self.names()]
        return self.content.database.position_before((log.id, ends.get(log.name, 0)) for log in logs)

    def gaps(self, wanted: Iterable[tuple[int, int, int]]) -> dict[int, list[Gap]]:
        """Return the gaps of logs that begin in a range of numbers, by the number of the log."""
        found: dict[int, list[Gap]] = {}
        for log, *values in self.content.database.rows(_GAPS, (json.dumps(list(wanted)),)):
            found.setdefault(log, []).append(gap_of(Entry(*values)))
        return found

    @property
    def max_bytes(self) -> int | None:
        """The size above which `sweep` deletes the oldest rows, if there is one."""
        return self._retention.max_bytes

    @property
    def commits(self) -> int:
        """How many groups of appends were stored since the store was opened."""
        return self._writer.commits

    @property
    def waiting_bytes(self) -> int:
        """The size of the appends that wait for the disk."""
        return self._writer.waiting_bytes

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

    def sweep(self) -> int:
        """Delete the oldest rows that exceed the retention. Return how many bodies were deleted.

        Call it about once a minute. Nothing counts as too old until the clock has been steady for ten minutes in this
        process (see `retention`). This works on a full disk, too: files are deleted before anything is written, and
        what must be written has room in reserve. Tables that were found to be damaged are made anew.
        """
        with self.maintenance_lock:
            self.check()
            self._repaired()
            self._retention.update()
            files = dict(self._expired())
            self._delete(list(files), [name for name in files.values() if name])
            if files:
                self._writer.checkpoint()
            self.disk.fill_reserve()
            return len(files)

    def _expired(self) -> list[tuple[int, str | None]]:
        """Return the oldest bodies, and their files, that exceed the retention."""
        found = self.content.database.bodies()
        created = [each.created for each in found]
        if self._writer.full_since is not None:
            created.append(int(self._writer.full_since * 1e6))
        size = sum(each.bytes for each in found)
        oldest, most = self._retention.oldest(), self._retention.max_bytes
        expired: list[tuple[int, str | None]] = []
        for at, body in enumerate(found):
            is_old = oldest is not None and end_of_first(created[at:], self._retention.now) < oldest * 1e6
            if not is_old and (most is None or size <= most):
                break
            size -= body.bytes
            if body.file is None or not self._held[body.file]:
                expired.append((body.id, body.file))
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

    def replace(self, bodies: Sequence[BodyRow], new: Sequence[NewBody]) -> list[str]:
        """Store `new`, which has the rows of `bodies`, in their place. Return the names of the new files.

        Raises `OSError` or `StorageError`, and changes nothing, if that fails.
        """
        newest = bodies[-1]
        numbered = [(self._writer.new_body(), each) for each in new]
        files = {number: f"{number:012d}.parquet" for number, each in numbered if each.is_file}

        def work(connection: sqlite3.Connection) -> None:
            replaced = [body.id for body in bodies]
            delete_entries(connection, replaced)
            delete_bodies(connection, replaced)
            for number, each in numbered:
                put_body(connection, number, each.log, newest.ordinal, newest.created, each.data, files.get(number))
                breaks = breaks_in(connection, each.rows)
                put_entries(connection, entries_of(each.rows, number, len(each.data), breaks))

        try:
            for number, each in numbered:
                if each.is_file:
                    self.disk.write(files[number], each.data)
            self._writer.call(work)
        except BaseException:
            for name in files.values():
                with contextlib.suppress(OSError):
                    self.disk.remove(name)
            raise
        return list(files.values())

    def mark_end(self, ends: Mapping[int, int | None], why: str) -> None:
        """Store to which times (us UTC) logs, by number, are complete, and why they would not go on after that.

        With None, the time that is stored stays.
        """
        rows = [(time, why, log) for log, time in ends.items()]
        self._writer.call(lambda connection: connection.executemany(MARK_END, rows))

    def name_of(self, log: int) -> str:
        """Return the name of the log with this number."""
        with self._writer.changed:
            return self._names[log]

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


def _forget(connection: sqlite3.Connection, bodies: Sequence[int]) -> dict[int, int]:
    """Delete bodies, and all that is before their rows. Return the first numbers of their logs."""
    found = connection.execute(
        "select log, max(first + rows) from entries where body in (select value from json_each(?)) group by log",
        (json.dumps(bodies),),
    ).fetchall()
    delete_entries(connection, bodies)
    delete_bodies(connection, bodies)
    ends = [{"log": log, "end": end} for log, end in found]
    connection.executemany("update logs set first = max(first, :end), next = max(next, :end) where id = :log", ends)
    connection.executemany("delete from entries where log = :log and why <> '' and first + rows <= :end", ends)
    return dict(found)
