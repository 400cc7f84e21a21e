"""The embedded engine: stores all logs of a folder in one sequence of segments.

The records of all logs are in the same file, in the order of the appends. So a thousand boards cost one write and one
sync, while a file for each board would cost a thousand (docs/decisions/0013-the-recording-log.md has the figures).
There is no manifest: the file names tell which segments exist, and each segment has the names of its logs.

A folder has one `Store`, which writes; a `StoreReader` can read at the same time. Opening a store cuts off an
unfinished write that a crash left at the end, and reports it in `statistics().damage`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from fastflight.errors import DataError, RequestError, SequenceConflict, UnknownName, nearest
from fastflight.log.committer import Commit, Committer, Ticket
from fastflight.log.content import MAX_NAME_BYTES, Codec, LogState, encode_state, log_number
from fastflight.log.disk import Disk, LocalDisk, failure, make_private
from fastflight.log.index import LOST, MAX_SEQ, PAUSE
from fastflight.log.lock import LOCK_NAME, FileLock
from fastflight.log.parts import extents, known_damage, load_parts, log_statistics
from fastflight.log.reading import LogReading, Snapshot, StorePart, retry_missing
from fastflight.log.record import RecordKind, record_size
from fastflight.log.reserve import Reserve
from fastflight.log.retention import Retention, RetentionCheck
from fastflight.log.segment import Segment
from fastflight.log.stored import StoredRows, stored_rows
from fastflight.log.values import (
    EVERYTHING,
    Damage,
    Extent,
    LogStatistics,
    Missing,
    NumberedRows,
    Range,
    StoreStatistics,
)
from fastflight.log.writer import NewRecord, SegmentWriter, WrittenRecord

# Small enough that a scan after a crash takes a fraction of a second.
SEGMENT_BYTES = 64 * 1024 * 1024
# A segment has at most this share of `max_bytes` of the retention, which deletes whole segments.
SEGMENT_SHARE = 8
# A segment is closed at this age, so that it can be compacted or deleted.
SEGMENT_SECONDS = 3600.0
# By default an append waits at most this long for a sync. A power cut can cost the rows of this time.
SYNC_MS = 100.0


class EncodedBatch(NamedTuple):
    """An encoded batch that has no sequence numbers yet."""

    rows: int
    times: tuple[int, int]
    body: memoryview
    crc: int


class Log:
    """One log of a `Store`. Any thread may use it.

    It has many readers but only one writer at a time: a second writer notices the first one by the `expected` number.
    """

    def __init__(self, store: Store, state: LogState, state_ordinal: int) -> None:
        self.name = state.name
        self.codec = Codec(pa.ipc.read_schema(pa.py_buffer(state.schema)))
        self.number = state.number
        # The first number that is not trimmed.
        self.first = state.first
        # The number after the last durable row.
        self.durable_end = state.next
        # The number after the last row of the appends that wait.
        self.assigned_end = state.next
        # The last segment that has this log's state; -1 if none has it.
        self.state_ordinal = state_ordinal
        self._store = store

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""
        return self.codec.schema

    @property
    def next_seq(self) -> int:
        """The number that the next appended row gets."""
        return self.assigned_end

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """Append `batch`, and return a ticket. Waits only while too much data already waits for the disk.

        `expected` is the number that the caller takes for `next_seq`. `first` is the number of the first row, if it
        is larger than `next_seq`: the numbers left out are reported as "never written", and count as lost. Those of
        them below `paused_until` are reported as "not recorded", and do not count as lost.

        Raises `SequenceConflict`, and appends nothing, if `expected` is not `next_seq` or `first` is below it, and
        `DataError` for a batch that does not fit the log.
        """
        encoded = self._encode(batch)
        while True:
            ticket = self._store.queue_append(self, encoded, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            ticket.wait(None)

    async def aappend(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> Ticket:
        """As `append`, on an event loop, which goes on while this waits."""
        encoded = self._encode(batch)
        while True:
            ticket = self._store.queue_append(self, encoded, expected, first, paused_until)
            if isinstance(ticket, Ticket):
                return ticket
            await ticket.await_end()

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        """Yield the durable rows in the order of their numbers, up to the end of the log when reading began."""
        return LogReading(self._store, self.number, self.codec, wanted).run()

    def trim(self, before_seq: int) -> Ticket:
        """Delete the rows before a number. Reading does not return them again; their disk space is freed later.

        The ticket is done when the deletion is durable.
        """
        return self._store.trim(self, before_seq)

    def statistics(self) -> LogStatistics:
        """Return the present statistics of the log."""
        return retry_missing(lambda: log_statistics(self._store.snapshot(self.number), self.number))

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """Return where the rows of a range are stored now, in the order of their numbers."""
        return retry_missing(lambda: extents(self._store.snapshot(self.number), self.number, wanted))

    def stored(self, wanted: Range = EVERYTHING, limit: int | None = None) -> StoredRows:
        """Open the Parquet files with the oldest rows of a range, at most `limit`. Close what this returns."""
        return retry_missing(lambda: stored_rows(self._store.snapshot(self.number), self.number, wanted, limit))

    def _encode(self, batch: pa.RecordBatch) -> EncodedBatch:
        if not batch.num_rows:
            raise DataError("a batch without rows", where=self.name, hint="There is nothing to keep")
        body = self.codec.encode(batch)
        return EncodedBatch(batch.num_rows, self.codec.times(batch), body, crc32(body))


class Store:
    """Logs by name, in one folder. Close it, or use it as a context manager."""

    def __init__(
        self,
        folder: str | Path,
        *,
        sync_ms: float = SYNC_MS,
        retention: Retention | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_seconds: float = SEGMENT_SECONDS,
        holder: str = "",
        disk: Disk | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open `folder` to write, and create it if it is missing.

        `sync_ms` is how long an append may wait for others, to share a sync with them; with 0 it does not wait.
        `segment_bytes` and `segment_seconds` limit the size and the age of a segment, which also has at most an eighth
        of `max_bytes` in `retention`. `holder` is the name that other writers get in their `BusyError`. `clock` is the
        time of day, which may be set, and `ticks` a monotonic clock.

        Raises `BusyError`, which names the other writer, if the folder has one, and `StorageError` if the disk fails.
        """
        folder = Path(folder)
        try:
            # Whether other users have no access to the folder.
            self.is_private = make_private(folder)
            self._lock = FileLock(folder / LOCK_NAME, holder)
        except OSError as error:
            raise failure(error, "opening the recordings") from error
        self._disk = disk if disk is not None else LocalDisk(folder)
        self._retention = RetentionCheck(retention or Retention(), clock, ticks)
        if self._retention.max_bytes is not None:
            segment_bytes = min(segment_bytes, self._retention.max_bytes // SEGMENT_SHARE)
        # Held by `sweep` and `compact`, which both remove parts, so that only one of them runs at a time.
        self.maintenance_lock = threading.Lock()
        self._logs: dict[int, Log] = {}
        self._torn: list[Damage] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            try:
                self._parts: list[StorePart] = load_parts(self._disk, writing=True)
                newest = self._parts[-1] if self._parts else None
                segment = newest if isinstance(newest, Segment) and not newest.closed else None
                ordinal = newest.last_ordinal + 1 if newest is not None else 0
                self._reserve = Reserve(self._disk)
                self._writer = SegmentWriter(
                    self._disk, self._reserve, segment, ordinal, segment_bytes, segment_seconds, clock
                )
                undo.callback(self._writer.close)
                torn = self._writer.resume()
            except OSError as error:
                raise failure(error, "opening the recordings") from error
            if segment is not None and torn:
                self._torn.append(Damage(segment.name, segment.end, torn, torn=True))
            self._find_logs()
            undo.pop_all()
        self._committer = Committer(self._writer, self, sync_ms, folder.name)
        self._fill_reserve()

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        with self._committer.changed:
            return sorted(log.name for log in self._logs.values())

    def open(self, name: str, schema: pa.Schema) -> Log:
        """Return a log to append to, and create it if it does not exist. Its name is stored with its first rows.

        Raises `RequestError` if it exists with another schema, or the name is not valid.
        """
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError(f"a log's name has 1 to {MAX_NAME_BYTES} bytes", where=name[:MAX_NAME_BYTES])
        message, number = Codec(schema).message, log_number(name)
        with self._committer.changed:
            log = self._logs.get(number)
            if log is None:
                log = self._logs[number] = Log(self, self._initial_state(name, number, message), -1)
            elif log.name != name or not log.schema.equals(schema, check_metadata=True):
                raise RequestError(
                    "the log has another schema" if log.name == name else f"the name collides with {log.name!r}",
                    where=name,
                    hint="Give the new rows a log of their own",
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
        with self._committer.changed:
            return self._logs.get(log_number(name))

    def beyond(self, ends: Mapping[str, int]) -> list[str]:
        """Return the names of the logs that have durable rows from the number in `ends` on (0 for those not in it)."""
        with self._committer.changed:
            return [log.name for log in self._logs.values() if log.durable_end > ends.get(log.name, 0)]

    def statistics(self) -> StoreStatistics:
        """Return the present statistics of the store."""
        with self._committer.changed:
            return StoreStatistics(
                logs=len(self._logs),
                rows=sum(part.index.rows for part in self._parts),
                bytes=sum(part.size for part in self._parts),
                parts=len(self._parts),
                commits=self._committer.commits,
                failed=self._committer.failed,
                waiting_bytes=self._committer.waiting_bytes,
                damage=(*known_damage(self._parts), *self._torn),
            )

    def close(self) -> None:
        """Write the appends that wait, and close the store. `append` raises `Stopped` from then on.

        Waits for a running sweep or compaction, which stops at its next step.
        """
        self._committer.close()
        with self.maintenance_lock:
            self._writer.close()
            self._lock.close()

    def check(self) -> None:
        """Raise `Stopped` if the store is closed."""
        with self._committer.changed:
            self._committer.check()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def queue_append(
        self, log: Log, batch: EncodedBatch, expected: int | None, first: int | None, paused_until: int
    ) -> Ticket | Commit:
        """Assign numbers to an append, queue it, and return its ticket.

        If too much data waits for the disk, return the commit to wait for before the next call instead.
        """
        with self._committer.changed:
            if (busy := self._committer.room()) is not None:
                return busy
            if expected is not None and expected != log.assigned_end:
                raise SequenceConflict(expected, log.assigned_end, where=log.name)
            start = log.assigned_end if first is None else first
            if start < log.assigned_end:
                raise SequenceConflict(start, log.assigned_end, where=log.name)
            last = start + batch.rows - 1
            if last >= MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=log.name)
            state = LogState(log.first, log.assigned_end, log.name, log.codec.message)
            pause_end = min(max(log.assigned_end, paused_until), start)
            holes = ((log.assigned_end, pause_end, PAUSE), (pause_end, start, LOST))
            records = [
                NewRecord(RecordKind.SKIP, state, log.number, at, end - at, times)
                for at, end, times in holes
                if end > at
            ]
            records.append(NewRecord(RecordKind.BATCH, state, log.number, start, *batch))
            log.assigned_end = last + 1
            return Ticket(start, last, self._committer.put(records))

    def trim(self, log: Log, before_seq: int) -> Ticket:
        """Do what `Log.trim` says."""
        with self._committer.changed:
            self._committer.check()
            first = min(max(before_seq, log.first), log.assigned_end)
            return Ticket(first, first - 1, self._committer.put([_state(log, first, log.assigned_end)]))

    def sweep(self) -> int:
        """Delete the oldest parts that are trimmed or exceed the retention, and return how many.

        Call it about once a minute. No part counts as too old until the clock has been steady for ten minutes in this
        process (see `retention`). This works on a full disk, too: room for what must be written first is in reserve.
        """
        with self.maintenance_lock:
            self._retention.update()
            swept = self._sweep()
            self._fill_reserve()
            return swept

    def _sweep(self) -> int:
        swept = 0
        while True:
            with self._committer.changed:
                self._committer.check()
                part = self._oldest_expired()
                if part is None:
                    return swept
                orphans = [log for log in self._logs.values() if 0 <= log.state_ordinal <= part.last_ordinal]
                states = [_state(log, max(log.first, self._end_in(part, log)), log.durable_end) for log in orphans]
                commit = self._committer.put_states(states) if states else None
            if commit is not None:  # write the states that only this part has again before it is deleted
                commit.wait(None)
                commit.check()
            with self._committer.changed:
                if self._parts[-1] is part:
                    return swept  # no later segment has the states
                for log in self._logs.values():
                    log.first = max(log.first, self._end_in(part, log))
                self._parts.remove(part)
            self._remove(part)
            self._fill_reserve()  # before rows take the room
            swept += 1

    def _fill_reserve(self) -> None:
        """Reserve room for the states of all logs, if the retention may have to delete any."""
        if self._retention.is_limited:
            with self._committer.changed:
                states = [encode_state(_state(log, log.first, log.durable_end).state) for log in self._logs.values()]
            with contextlib.suppress(OSError):  # the disk is full: the next sweep tries again
                self._reserve.fill(sum(record_size(len(state)) for state in states))

    def segments(self) -> list[Segment]:
        """Return all segments, the one to which is written included."""
        with self._committer.changed:
            return [part for part in self._parts if isinstance(part, Segment)]

    def closed_segments(self) -> list[Segment]:
        """Return the segments to which nothing more is written."""
        with self._committer.changed:
            return [part for part in self._parts if isinstance(part, Segment) and part is not self._writer.segment]

    def replace(self, segments: Sequence[Segment], part: StorePart) -> None:
        """Read `part` instead of `segments`, whose rows it has, and remove their files."""
        with self._committer.changed:
            at = self._parts.index(segments[0])
            self._parts[at : at + len(segments)] = [part]
        for segment in segments:
            self._remove(segment)

    def snapshot(self, number: int) -> Snapshot:
        """Return the present snapshot of a log, with its durable rows only."""
        with self._committer.changed:
            log = self._logs[number]
            return Snapshot(list(self._parts), log.first, log.durable_end)

    def group_committed(self, records: Sequence[NewRecord], written: Sequence[WrittenRecord]) -> None:
        """Make a durable group visible to readers. The caller holds the committer's lock."""
        segment = self._writer.segment
        assert segment is not None
        self._writer.add_to_index(written)
        if not self._parts or self._parts[-1] is not segment:
            self._parts.append(segment)
        for record in records:
            log = self._logs[record.log_number]
            log.state_ordinal = segment.ordinal
            if record.kind is RecordKind.STATE:
                log.first = max(log.first, record.state.first)
            else:
                log.durable_end = record.first + record.rows

    def group_failed(self) -> None:
        """Free the numbers of the appends that failed. The caller holds the committer's lock."""
        for log in self._logs.values():
            log.assigned_end = log.durable_end

    def _oldest_expired(self) -> StorePart | None:
        """Return the oldest part if it is to be deleted, else None."""
        closed_at = self._writer.closed_at
        if len(self._parts) < (2 if closed_at is None else 1):
            return None  # rows can still be written to the newest segment
        part = self._parts[0]
        if self._retention.exceeded(self._parts, closed_at):
            return part
        trimmed = all(
            number in self._logs and self._logs[number].first >= log_index.next
            for number, log_index in part.index.logs.items()
        )
        return part if trimmed and not part.index.damage else None

    def _end_in(self, part: StorePart, log: Log) -> int:
        log_index = part.index.logs.get(log.number)
        return min(log_index.next, log.durable_end) if log_index is not None else 0

    def _remove(self, part: StorePart) -> None:
        for name in part.files:
            with contextlib.suppress(OSError):  # the next writer that opens the folder removes it
                self._disk.remove(name)

    def _find_logs(self) -> None:
        for part in self._parts:
            for number, log_index in part.index.logs.items():
                if not log_index.state.name:
                    continue
                log = self._logs.get(number)
                if log is None:
                    log = self._logs[number] = Log(self, log_index.state, part.last_ordinal)
                log.state_ordinal = part.last_ordinal
                log.first = max(log.first, log_index.state.first)
        for log in self._logs.values():
            indexes = [part.index.logs[log.number] for part in self._parts if log.number in part.index.logs]
            log.durable_end = log.assigned_end = max(index.next for index in indexes)
            # Numbers in parts that no longer exist were deleted.
            log.first = max(log.first, indexes[0].begin)

    def _initial_state(self, name: str, number: int, message: bytes) -> LogState:
        """Return the state of a log that is new, or whose state records are all damaged."""
        indexes = [part.index.logs[number] for part in self._parts if number in part.index.logs]
        begin = indexes[0].begin if indexes else 0
        return LogState(begin, max((index.next for index in indexes), default=0), name, message)


def _state(log: Log, first: int, following: int) -> NewRecord:
    return NewRecord(RecordKind.STATE, LogState(first, following, log.name, log.codec.message), log.number)
