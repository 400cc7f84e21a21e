"""Where a log in JetStream begins and ends at one moment, its statistics, its extents, and its Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

from fastflight.cluster.log_stream import LogStream, State, Tail, subject_of
from fastflight.cluster.record import Record, Totals, decode_record
from fastflight.cluster.replicated_parts import ReplicatedParts
from fastflight.errors import UnknownName
from fastflight.log import parts
from fastflight.log.content import log_number
from fastflight.log.index import LogIndex
from fastflight.log.reading import Snapshot, StorePart, retry_missing
from fastflight.log.stored import StoredRows, stored_rows
from fastflight.log.values import Extent, LogStatistics, Range

T = TypeVar("T")

# A reader with several streams gets one for each extent of this size, or larger ones if there were more of them.
EXTENT_BYTES = 64 * 1024 * 1024
MAX_EXTENTS = 16


class Recorded(Protocol):
    """A `ReplicatedStore` to read from. `call` runs a coroutine on the loop of the connection."""

    stream: LogStream
    parts: ReplicatedParts

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, or raise its error."""


class Position(NamedTuple):
    """A log at one moment: its state, its end, the compacted parts that have rows of it, and its first message.

    The numbers from `compacted` on are in messages. Messages of rows that are in parts are left out: they are deleted
    as soon as the parts are valid.
    """

    state: State
    tail: Tail
    parts: list[StorePart]
    compacted: int
    head: Record | None

    @property
    def first(self) -> int:
        """The first number that is neither trimmed nor deleted by retention."""
        begin = self.head.begin if self.head is not None else self.tail.next
        if self.parts:
            begin = self.parts[0].index.logs[self.state.log.number].begin
        return max(self.state.log.first, begin)

    @property
    def snapshot(self) -> Snapshot:
        """What is in the parts."""
        return Snapshot(self.parts, self.first, self.compacted)


def position(store: Recorded, name: str) -> Position:
    """Return where a log begins and ends now. `UnknownName` if there is none of that name.

    The parts are listed last: a message is deleted only after a part has its rows.
    """
    state, tail = store.call(store.stream.end(name))
    if state is None:
        raise UnknownName("no such recording", where=name)
    number = log_number(name)
    head = _record_from(store, name, tail, 1)
    found: list[StorePart] = [part for part in store.parts.all() if number in part.index.logs]
    compacted = max((_index(part, number).next for part in found), default=0)
    if head is not None and head.next <= compacted:
        head = first_record(store, name, tail, lambda record: record.next > compacted)
    tail = tail._replace(next=max(tail.next, compacted))
    return Position(state, tail, found, compacted, head)


def _index(part: StorePart, number: int) -> LogIndex:
    return part.index.logs[number]


def first_record(store: Recorded, name: str, tail: Tail, passed: Callable[[Record], bool]) -> Record | None:
    """Return the first message of a log for which `passed` is true, and is true for all later ones."""
    at = store.call(store.stream.find(subject_of(name), log_number(name), tail.seq, passed))
    return _record_from(store, name, tail, at)


def _record_from(store: Recorded, name: str, tail: Tail, at: int) -> Record | None:
    """Return the first message from `at` on that can be read."""
    while page := store.call(store.stream.next_page(subject_of(name), at, tail.seq)):
        for message in page:
            if (record := decode_record(message.data, log_number(name))) is not None:
                return record
        at = page[-1].seq + 1
    return None


def statistics(store: Recorded, name: str) -> LogStatistics:
    """Return the present statistics of a log. Damage that only reading finds is not in it."""
    at = position(store, name)
    return _joined(parts.log_statistics(at.snapshot, at.state.log.number), _of_messages(at))


def _of_messages(at: Position) -> LogStatistics:
    head, last = at.head, at.tail.record
    if head is None or last is None:
        return LogStatistics(0, 0, at.first, at.tail.next, None, None)
    totals, before = last.totals, head.before
    rows = totals.rows - before.rows - max(at.first - head.first, 0)
    lost = totals.lost - before.lost - max(min(at.first, head.first) - head.pause_end, 0)
    return LogStatistics(
        rows,
        totals.bytes - before.bytes if rows else 0,
        at.first,
        at.tail.next,
        head.first_time if rows else None,
        totals.latest if rows else None,
        lost,
    )


def _joined(older: LogStatistics, newer: LogStatistics) -> LogStatistics:
    """Return the statistics of a log whose older rows are in parts, and whose newer ones are in messages."""
    times = [time for each in (older, newer) for time in (each.first_time, each.last_time) if time is not None]
    return replace(
        newer,
        rows=older.rows + newer.rows,
        bytes=older.bytes + newer.bytes,
        first_time=min(times, default=None),
        last_time=max(times, default=None),
        lost=older.lost + newer.lost,
        damage=older.damage,
    )


def extents(store: Recorded, name: str, wanted: Range) -> list[Extent]:
    """Return ranges of a log that are worth reading with a stream each, in order."""
    at = position(store, name)
    return [*parts.extents(at.snapshot, at.state.log.number, wanted), *_extents_of_messages(store, name, at, wanted)]


def stored(store: Recorded, name: str, wanted: Range, limit: int | None) -> StoredRows:
    """Open the Parquet files of the parts that begin a range. Rows after `end` are in messages."""

    def opened() -> StoredRows:
        at = position(store, name)
        return stored_rows(Snapshot(at.parts, at.first, at.tail.next), at.state.log.number, wanted, limit)

    return retry_missing(opened)


def _extents_of_messages(store: Recorded, name: str, at: Position, wanted: Range) -> list[Extent]:
    low = max(at.first, at.compacted, wanted.from_seq or 0)
    high = at.tail.next if wanted.until_seq is None else min(at.tail.next, wanted.until_seq + 1)
    begin = first_record(store, name, at.tail, lambda record: record.next > low and reaches(record, wanted))
    end = first_record(store, name, at.tail, lambda record: record.next >= high) or at.tail.record
    if begin is None or end is None or low >= high or begin.begin >= high:
        return []
    size = max(EXTENT_BYTES, (end.totals.bytes - begin.before.bytes) // MAX_EXTENTS + 1)
    found: list[Extent] = []
    first, before = max(low, begin.begin), _before(begin, low)
    while first < high:
        target = before.bytes + size
        part = first_record(store, name, at.tail, lambda record, goal=target: record.totals.bytes >= goal) or end  # type: ignore[misc]
        if part.next >= high:
            part = end
        after = part.totals
        last = min(part.next, high) - 1
        rows = after.rows - before.rows - max(part.next - max(high, part.first), 0)
        if rows:
            found.append(Extent(first, last, rows, after.bytes - before.bytes))
        first, before = last + 1, after
    return found


def _before(record: Record, low: int) -> Totals:
    """Return the totals before the number `low`, which `record` reaches."""
    return record.before._replace(rows=record.before.rows + max(low - record.first, 0))


def reaches(record: Record, wanted: Range) -> bool:
    """Whether rows from this message on may be late enough for the range."""
    return wanted.from_time is None or record.totals.latest >= wanted.from_time
