"""A log to append to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from fastflight.errors import RequestError, SequenceConflict
from fastflight.gap import Gap, Why, microseconds
from fastflight.log.bodies import check, size_of, times_of
from fastflight.log.reading import Bounds
from fastflight.log.store_reader import LogReader
from fastflight.log.ticket import Commit, Ticket
from fastflight.log.values import MAX_SEQ, Columns
from fastflight.log.writer import Append, Hole, Writer

if TYPE_CHECKING:
    from fastflight.log.store import Store


class _Rows(NamedTuple):
    """How many rows are to be appended, these, their earliest and latest time, and about how many bytes they have."""

    length: int
    content: pa.RecordBatch | Columns
    times: tuple[int, int]
    bytes: int


class Log(LogReader):
    """One log of a `Store`. Any thread may use it.

    It has many readers but only one writer at a time: a second writer notices the first one by the `expected` number.
    """

    def __init__(
        self, store: Store, writer: Writer, number: int, name: str, first: int = 0, following: int = 0
    ) -> None:
        super().__init__(store.content, number, name)
        self._store = store
        # The first number that was not deleted.
        self.first = first
        # The number after the last durable row.
        self.durable_end = following
        # The number after the last row of the appends that wait.
        self.assigned_end = following
        self._writer = writer

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
            ticket = self._put(new, expected, first, paused_until, gap)
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
            ticket = self._put(new, expected, first, paused_until, gap)
            if isinstance(ticket, Ticket):
                return ticket
            await ticket.await_end()

    def _bounds(self) -> Bounds:
        return Bounds(self.first, self.durable_end)

    def _hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        return self._store.hold(names)

    def _measured(self, rows: pa.RecordBatch | Columns) -> _Rows:
        if isinstance(rows, pa.RecordBatch):
            check(rows)
            length = int(rows.num_rows)
        else:
            length = len(rows[0])
        return _Rows(length, rows, times_of(rows), size_of(rows))

    def _put(
        self, rows: _Rows, expected: int | None, first: int | None, paused_until: int, gap: Gap | None
    ) -> Ticket | Commit:
        """Assign numbers to rows, queue them, and return their ticket.

        If too much data waits for the disk, return the commit to wait for before the next call instead.
        """
        with self._writer.changed:
            if (busy := self._writer.room()) is not None:
                return busy
            end = self.assigned_end
            if expected is not None and expected != end:
                raise SequenceConflict(expected, end, where=self.name)
            start = end if first is None else first
            if start < end:
                raise SequenceConflict(start, end, where=self.name)
            last = start + rows.length - 1
            if last >= MAX_SEQ:
                raise RequestError(f"numbers go up to {MAX_SEQ}", where=self.name)
            holes: list[Hole] = []
            used = min(max(end, paused_until), start)
            if used > end:
                holes.append(Hole(end, used - 1, Why.UNUSED))
            if gap is not None:
                holes.append(Hole(used, start - 1, gap.why, microseconds(gap.from_time), microseconds(gap.to_time)))
            elif start > used:
                holes.append(Hole(used, start - 1, Why.NOT_READ))
            self.assigned_end = last + 1
            return Ticket(start, last, self._writer.put(Append(self, start, *rows, holes)))
