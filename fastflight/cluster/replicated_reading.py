"""Reads a log from JetStream: its rows by number and time, its statistics, and its extents.

A read covers the rows that are there when it begins. Each row has passed the checksum of its message, and its number
is the one that the message says. Numbers that no message explains are reported as damaged. So is a message whose
checksum is wrong, after it was read again from several nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from fastflight.cluster.log_stream import LogStream, State, Stored, Tail, subject_of
from fastflight.cluster.record import Record, Totals, decode_record
from fastflight.errors import StorageError, UnknownName
from fastflight.log.content import Codec, log_number
from fastflight.log.ranged import RangeItems
from fastflight.log.values import Extent, LogStatistics, Missing, NumberedRows, Range

T = TypeVar("T")

# A reader with several streams gets one for each extent of this size, or larger ones if there were more of them.
EXTENT_BYTES = 64 * 1024 * 1024
MAX_EXTENTS = 16


class Caller(Protocol):
    """Runs coroutines on the loop of the connection, and waits for their results in the calling thread."""

    stream: LogStream

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, or raise its error."""


class Position(NamedTuple):
    """A log at one moment: its state, its end, and its first message that can be read."""

    state: State
    tail: Tail
    head: Record | None

    @property
    def first(self) -> int:
        """The first number that is neither trimmed nor deleted by retention."""
        begin = self.head.begin if self.head is not None else self.tail.next
        return max(self.state.log.first, begin)


async def position(stream: LogStream, name: str) -> Position:
    """Return where a log begins and ends now. `UnknownName` if there is none of that name."""
    state = await stream.state(name)
    if state is None:
        raise UnknownName("no such recording", where=name)
    tail = await stream.tail(name, state.log.next)
    head = None
    at = 1
    while head is None and (page := await stream.next_page(subject_of(name), at, tail.seq)):
        head = next(filter(None, (decode_record(message.data, log_number(name)) for message in page)), None)
        at = page[-1].seq + 1
    return Position(state, tail, head)


def statistics(caller: Caller, name: str) -> LogStatistics:
    """Return the present statistics of a log. Damage that only reading finds is not in it."""
    at = caller.call(position(caller.stream, name))
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


def extents(caller: Caller, name: str, wanted: Range) -> list[Extent]:
    """Return ranges of a log that are worth reading with a stream each, in order."""
    at = caller.call(position(caller.stream, name))
    low = max(at.first, wanted.from_seq or 0)
    high = at.tail.next if wanted.until_seq is None else min(at.tail.next, wanted.until_seq + 1)
    begin = _record(caller, name, at.tail, lambda record: record.next > low and _reaches(record, wanted))
    end = _record(caller, name, at.tail, lambda record: record.next >= high) or at.tail.record
    if begin is None or end is None or low >= high or begin.begin >= high:
        return []
    size = max(EXTENT_BYTES, (end.totals.bytes - begin.before.bytes) // MAX_EXTENTS + 1)
    found: list[Extent] = []
    first, before = max(low, begin.begin), _before(begin, low)
    while first < high:
        target = before.bytes + size
        part = _record(caller, name, at.tail, lambda record, goal=target: record.totals.bytes >= goal) or end  # type: ignore[misc]
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


def _reaches(record: Record, wanted: Range) -> bool:
    return wanted.from_time is None or record.totals.latest >= wanted.from_time


def _record(caller: Caller, name: str, tail: Tail, passed: Callable[[Record], bool]) -> Record | None:
    """Return the first message of a log for which `passed` is true."""
    stream, subject, number = caller.stream, subject_of(name), log_number(name)
    at = caller.call(stream.find(subject, number, tail.seq, passed))
    for message in caller.call(stream.next_page(subject, at, tail.seq)):
        if (record := decode_record(message.data, number)) is not None:
            return record
    return None


class ReplicatedReading:
    """One pass over a log, for the range `wanted`. `run` yields its rows and its missing numbers.

    Rows below the number `known` are known to have been stored. If JetStream has lost them, they are damaged.
    """

    def __init__(self, caller: Caller, name: str, codec: Codec, wanted: Range, known: int = 0) -> None:
        self._caller = caller
        self._stream = caller.stream
        self._name = name
        self._subject = subject_of(name)
        self._number = log_number(name)
        self._codec = codec
        self._wanted = wanted
        self._known = known
        self._items = RangeItems(wanted)
        # Before the first message, deleted numbers are reported only if they were asked for.
        self._begun = False
        # The sequence number of the message that was read last.
        self._seq = 0

    def run(self) -> Generator[NumberedRows | Missing, None, None]:
        items, wanted = self._items, self._wanted
        at = self._caller.call(position(self._stream, self._name))
        tail = at.tail
        end = max(tail.next, self._known)
        stop = end if wanted.until_seq is None else min(end, wanted.until_seq + 1)
        yield from self._deleted(min(at.first, stop))
        if items.cursor < stop:
            start = self._caller.call(self._stream.find(self._subject, self._number, tail.seq, self._wants))
            self._seq = start - 1
            yield from self._messages(tail, stop)
        if tail.damaged and (wanted.until_seq is None or wanted.until_seq >= end):
            raise StorageError(
                f"its newest rows, from number {end} on, are damaged in JetStream",
                where=self._name,
                hint="Restore the stream from a node that has them",
            )

    def _wants(self, record: Record) -> bool:
        return record.next > self._items.cursor and _reaches(record, self._wanted)

    def _messages(self, tail: Tail, stop: int) -> Iterator[NumberedRows | Missing]:
        items, until = self._items, self._wanted.until_time
        back = tail.record.totals.back if tail.record is not None else 0
        while page := self._caller.call(self._stream.next_page(self._subject, self._seq + 1, tail.seq)):
            for message in page:
                record = decode_record(message.data, self._number)
                if record is None:
                    continue  # the next message shows which numbers it had
                if not self._begun and self._wanted.from_time is not None:
                    items.skip(record.begin)  # rows before it are too early
                if record.begin > items.cursor:
                    yield from self._explain(message, record)
                yield from self._record(message, record, stop)
                if items.cursor >= stop or (until is not None and record.totals.latest - back >= until):
                    return
            self._seq = max(self._seq, page[-1].seq)
        if items.cursor < stop:
            yield from items.hole(stop - 1, "damaged", "the end of the recording")

    def _explain(self, message: Stored, record: Record) -> Iterator[NumberedRows | Missing]:
        """Handle the numbers between the cursor and `record`: they were deleted, or are damaged here or everywhere."""
        at = self._caller.call(position(self._stream, self._name))
        yield from self._deleted(min(at.first, record.begin))
        if record.begin == self._items.cursor:
            return
        again = self._stream.between(self._subject, self._number, self._seq + 1, message.seq - 1)
        for other in self._caller.call(again):
            found = decode_record(other.data, self._number)
            if found is not None and self._items.cursor < found.next:
                if found.begin > self._items.cursor:
                    yield from self._damaged(found.begin - 1, other)
                yield from self._record(other, found, record.begin)
        if record.begin > self._items.cursor:
            yield from self._damaged(record.begin - 1, message)

    def _damaged(self, last: int, message: Stored) -> Iterator[Missing]:
        return self._items.damaged(last, f"JetStream, before message {message.seq}")

    def _deleted(self, first: int) -> Iterator[Missing]:
        """Report the numbers below `first`, which were trimmed or deleted by retention."""
        if self._items.cursor < first:
            if self._begun or self._wanted.from_seq is not None:
                yield from self._items.hole(first - 1, "trimmed")
            self._items.cursor = first

    def _record(self, message: Stored, record: Record, stop: int) -> Iterator[NumberedRows | Missing]:
        items = self._items
        self._begun, self._seq = True, message.seq
        if items.cursor < (end := min(record.pause_end, stop)):
            yield from items.hole(end - 1, "not recorded")
        if items.cursor < (end := min(record.first, stop)):
            yield from items.hole(end - 1, "never written")
        end = min(record.next, stop)
        if items.cursor >= end:
            return
        if not items.overlap(record.first_time, record.last_time):
            items.skip(end)
            return
        batch = self._codec.decode(pa.py_buffer(bytes(record.body)))
        yield from items.rows(
            batch.slice(items.cursor - record.first, end - items.cursor), record.first_time, record.last_time
        )
