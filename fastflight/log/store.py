"""The embedded engine: all logs of a folder in one sequence of segments.

Records of every log lie in one file one after another, so that a thousand boards cost one write and one sync where a
file for each would cost a thousand (docs/decisions/0013-the-recording-log.md has the figures). There is no manifest:
the names of the segments say what there is, each names the logs in it, and their sequence is the order of the appends.

`Store(folder)` writes, and is the only one that does; `fastflight.log.viewer.StoreReader` reads beside it. Opening cuts
what a crash left unfinished at the end, and says so in `statistics().damage`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from fastflight.errors import DataError, RequestError, SequenceConflict, UnknownName, nearest
from fastflight.log.age import Ages
from fastflight.log.batch_log import (
    EVERYTHING,
    Damage,
    Extent,
    LogStatistics,
    Missing,
    NumberedRows,
    Range,
    Retention,
    StoreStatistics,
)
from fastflight.log.commit import Commit, CommitTicket
from fastflight.log.committer import Committer
from fastflight.log.content import MAX_NAME_BYTES, Codec, LogState, stream_of
from fastflight.log.disk import Disk, LocalDisk, failure, make_private
from fastflight.log.index import LOST, MAX_SEQ, PAUSE
from fastflight.log.lock import LOCK_NAME, FileLock
from fastflight.log.parts import damage_of, extents, kept, load_parts
from fastflight.log.reading import LogReading, Snapshot, StorePart, looked
from fastflight.log.record import RecordKind
from fastflight.log.segment import Segment
from fastflight.log.writer import Item, SegmentWriter, WrittenRecord

# Small enough that scanning one after a crash takes a fraction of a second, and that retention goes in small steps.
SEGMENT_BYTES = 64 * 1024 * 1024
# A segment is closed at this age, so that it can be compacted and let go of.
SEGMENT_SECONDS = 3600.0
# Acknowledged at most this long after it was appended, where nothing else is said; what a power cut may cost.
SYNC_MS = 100.0


class Prepared(NamedTuple):
    """A batch as it will be written, before it has its numbers."""

    rows: int
    times: tuple[int, int]
    body: memoryview
    crc: int


class Log:
    """One log of a `Store`. Any thread may use it."""

    def __init__(self, store: Store, state: LogState, home: int) -> None:
        self.name = state.name
        self.codec = Codec(pa.ipc.read_schema(pa.py_buffer(state.schema)))
        self.number = state.stream
        # What is durable, what is promised to appends that wait, and the last segment that names it.
        self.first = state.first
        self.durable = state.next
        self.promised = state.next
        self.home = home
        self._store = store

    @property
    def schema(self) -> pa.Schema:
        return self.codec.schema

    @property
    def next_seq(self) -> int:
        return self.promised

    def append(
        self, batch: pa.RecordBatch, *, expected: int | None = None, first: int | None = None, paused_until: int = 0
    ) -> CommitTicket:
        prepared = self._prepare(batch)
        while True:
            ticket = self._store.offer(self, prepared, expected, first, paused_until)
            if isinstance(ticket, CommitTicket):
                return ticket
            ticket.wait(None)

    async def append_soon(
        self, batch: pa.RecordBatch, expected: int | None, first: int | None, paused_until: int
    ) -> CommitTicket:
        """`append`, awaiting room."""
        prepared = self._prepare(batch)
        while True:
            ticket = self._store.offer(self, prepared, expected, first, paused_until)
            if isinstance(ticket, CommitTicket):
                return ticket
            await ticket.await_end()

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Missing, None, None]:
        return LogReading(self._store, self.number, self.codec, wanted).run()

    def trim(self, before_seq: int) -> CommitTicket:
        return self._store.trim(self, before_seq)

    def statistics(self) -> LogStatistics:
        return looked(lambda: kept(self._store.snapshot(self.number), self.number))

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        return looked(lambda: extents(self._store.snapshot(self.number), self.number, wanted))

    def _prepare(self, batch: pa.RecordBatch) -> Prepared:
        if not batch.num_rows:
            raise DataError("a batch without rows", where=self.name, hint="There is nothing to keep")
        body = self.codec.encode(batch)
        return Prepared(batch.num_rows, self.codec.times(batch), body, crc32(body))


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
        """Open `folder` to write; `BusyError` names whoever does already, `StorageError` says what the disk does not.

        `sync_ms`: how long an append may wait for others to share a sync with; 0: not at all. `clock` is the time of
        day, which may be set, and `ticks` a clock that is not.
        """
        folder = Path(folder)
        try:
            # Whether other users are kept out of the folder.
            self.is_private = make_private(folder)
            self._lock = FileLock(folder / LOCK_NAME, holder)
        except OSError as error:
            raise failure(error, "opening the recordings") from error
        self._disk = disk if disk is not None else LocalDisk(folder)
        self._retention = retention or Retention()
        self._clock = clock
        self._ages = Ages(clock, ticks)
        # Sweeping and compacting take parts away: one at a time.
        self.tidying = threading.Lock()
        self._appends = 0
        self._logs: dict[int, Log] = {}
        self._torn: list[Damage] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            try:
                self._parts: list[StorePart] = load_parts(self._disk, writing=True)
                newest = self._parts[-1] if self._parts else None
                segment = newest if isinstance(newest, Segment) and not newest.closed else None
                ordinal = newest.last_ordinal + 1 if newest is not None else 0
                self._writer = SegmentWriter(self._disk, segment, ordinal, segment_bytes, segment_seconds, clock)
                undo.callback(self._writer.close)
                torn = self._writer.resume()
            except OSError as error:
                raise failure(error, "opening the recordings") from error
            if segment is not None and torn:
                self._torn.append(Damage(segment.name, segment.end, torn, torn=True))
            self._find_logs()
            undo.pop_all()
        self._committer = Committer(self._writer, self, sync_ms, folder.name)

    def names(self) -> list[str]:
        with self._committer.changed:
            return sorted(log.name for log in self._logs.values())

    def open(self, name: str, schema: pa.Schema) -> Log:
        """A log to append to, made if it is not there; it is named on the disk with its first rows."""
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise RequestError("a log's name has 1 to 255 bytes", where=name[:MAX_NAME_BYTES])
        message, number = Codec(schema).message, stream_of(name)
        with self._committer.changed:
            log = self._logs.get(number)
            if log is None:
                log = self._logs[number] = Log(self, self._remembered(name, number, message), -1)
            elif log.name != name or not log.schema.equals(schema, check_metadata=True):
                raise RequestError(
                    "the log has another schema" if log.name == name else f"the name collides with {log.name!r}",
                    where=name,
                    hint="Give the new rows a log of their own",
                )
            return log

    def log(self, name: str) -> Log:
        with self._committer.changed:
            log = self._logs.get(stream_of(name))
            if log is None:
                known = [log.name for log in self._logs.values()]
                raise UnknownName("no such recording", where=name, hint=nearest(name, known))
            return log

    def statistics(self) -> StoreStatistics:
        with self._committer.changed:
            return StoreStatistics(
                logs=len(self._logs),
                rows=sum(part.index.rows for part in self._parts),
                bytes=sum(part.size for part in self._parts),
                parts=len(self._parts),
                appends=self._appends,
                commits=self._committer.commits,
                failed=self._committer.failed,
                waiting_bytes=self._committer.waiting_bytes,
                damage=(*damage_of(self._parts), *self._torn),
            )

    def close(self) -> None:
        """Keep what waits, and end: after a sweep or a compaction that goes on, which ends at its next turn."""
        self._committer.close()
        with self.tidying:
            self._writer.close()
            self._lock.close()

    def check(self) -> None:
        """`Stopped` once it is closed."""
        with self._committer.changed:
            self._committer.check()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def offer(
        self, log: Log, batch: Prepared, expected: int | None, first: int | None, paused_until: int
    ) -> CommitTicket | Commit:
        """Number an append and have it written; where there is no room, the commit after which to ask again."""
        with self._committer.changed:
            if (busy := self._committer.room()) is not None:
                return busy
            if expected is not None and expected != log.promised:
                raise SequenceConflict(expected, log.promised, where=log.name)
            start = log.promised if first is None else first
            if start < log.promised:
                raise SequenceConflict(start, log.promised, where=log.name)
            last = start + batch.rows - 1
            if last >= MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=log.name)
            state = LogState(log.first, log.promised, log.name, log.codec.message)
            heard = min(max(log.promised, paused_until), start)
            holes = ((log.promised, heard, PAUSE), (heard, start, LOST))
            items = [
                Item(RecordKind.SKIP, state, log.number, at, end - at, times) for at, end, times in holes if end > at
            ]
            items.append(Item(RecordKind.BATCH, state, log.number, start, *batch))
            log.promised = last + 1
            self._appends += 1
            return CommitTicket(start, last, self._committer.put(items))

    def trim(self, log: Log, before_seq: int) -> CommitTicket:
        """Let go of a log's rows before a number; the ticket is done when that is kept."""
        with self._committer.changed:
            self._committer.check()
            first = min(max(before_seq, log.first), log.promised)
            return CommitTicket(first, first - 1, self._committer.put([_state(log, first)]))

    def sweep(self) -> int:
        """Let go of the oldest parts that are trimmed, too old, or too much. Returns how many. Call it now and then.

        Nothing is too old before the clock has gone steadily for ten minutes, of this process and since it was set.
        """
        with self.tidying:
            self._ages.look()
            return self._sweep()

    def _sweep(self) -> int:
        swept = 0
        while True:
            with self._committer.changed:
                self._committer.check()
                part = self._oldest_due()
                if part is None:
                    return swept
                orphans = [log for log in self._logs.values() if 0 <= log.home <= part.last_ordinal]
                states = [_state(log, max(log.first, self._end_in(part, log))) for log in orphans]
                commit = self._committer.put(states, urgent=True) if states else None
            if commit is not None:  # what only this part names is named again before it goes
                commit.wait(None)
                commit.check()
            with self._committer.changed:
                for log in self._logs.values():
                    log.first = max(log.first, self._end_in(part, log))
                self._parts.remove(part)
            self._remove(part)
            swept += 1

    def closed_segments(self) -> list[Segment]:
        """Segments that nothing is written to any more."""
        with self._committer.changed:
            return [part for part in self._parts if isinstance(part, Segment) and part is not self._writer.segment]

    def replace(self, segments: Sequence[Segment], part: StorePart) -> None:
        """`part` holds what `segments` did: read that, and remove them."""
        with self._committer.changed:
            at = self._parts.index(segments[0])
            self._parts[at : at + len(segments)] = [part]
        for segment in segments:
            self._remove(segment)

    def snapshot(self, number: int) -> Snapshot:
        """How a log stands now: what is acknowledged."""
        with self._committer.changed:
            log = self._logs[number]
            return Snapshot(list(self._parts), log.first, log.durable)

    def landed(self, items: Sequence[Item], written: Sequence[WrittenRecord]) -> None:
        """A group is kept: let readers see it. The lock is held."""
        segment = self._writer.segment
        assert segment is not None
        self._writer.take(written)
        if not self._parts or self._parts[-1] is not segment:
            self._parts.append(segment)
        for item in items:
            log = self._logs[item.stream]
            log.home = segment.ordinal
            if item.kind is RecordKind.STATE:
                log.first = max(log.first, item.state.first)
            else:
                log.durable = item.first + item.rows

    def fell(self) -> None:
        """What was promised is not kept. The lock is held."""
        for log in self._logs.values():
            log.promised = log.durable

    def _oldest_due(self) -> StorePart | None:
        if len(self._parts) < 2:
            return None  # the newest segment stays
        part = self._parts[0]
        limits = self._retention
        if limits.max_seconds is not None and self._ages.count:
            now = int(self._clock() * 1e6)
            # What was begun in the future had a wrong clock; the next one with a right one was begun later. So was what
            # follows one of which it is not known.
            begun = next((each.index.created for each in self._parts[1:] if 0 < each.index.created <= now), now)
            if now - begun > limits.max_seconds * 1e6:
                return part
        if limits.max_bytes is not None and sum(part.size for part in self._parts) > limits.max_bytes:
            return part
        trimmed = all(
            number in self._logs and self._logs[number].first >= stream.next
            for number, stream in part.index.streams.items()
        )
        return part if trimmed and not part.index.damage else None

    def _end_in(self, part: StorePart, log: Log) -> int:
        stream = part.index.streams.get(log.number)
        return min(stream.next, log.durable) if stream is not None else 0

    def _remove(self, part: StorePart) -> None:
        for name in part.files:
            with contextlib.suppress(OSError):  # whoever opens the folder next removes it
                self._disk.remove(name)

    def _find_logs(self) -> None:
        for part in self._parts:
            for number, stream in part.index.streams.items():
                if not stream.state.name:
                    continue
                log = self._logs.get(number)
                if log is None:
                    log = self._logs[number] = Log(self, stream.state, part.last_ordinal)
                log.home = part.last_ordinal
                log.first = max(log.first, stream.state.first)
        for log in self._logs.values():
            shares = [part.index.streams[log.number] for part in self._parts if log.number in part.index.streams]
            log.durable = log.promised = max(share.next for share in shares)
            # What lay in parts that are gone was let go of.
            log.first = max(log.first, shares[0].begin)

    def _remembered(self, name: str, number: int, message: bytes) -> LogState:
        """The state of a log that is new, or whose name was damaged wherever it stood."""
        shares = [part.index.streams[number] for part in self._parts if number in part.index.streams]
        begin = shares[0].begin if shares else 0
        return LogState(begin, max((share.next for share in shares), default=0), name, message)


def _state(log: Log, first: int) -> Item:
    return Item(RecordKind.STATE, LogState(first, log.promised, log.name, log.codec.message), log.number)
