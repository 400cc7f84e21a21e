"""A log to append to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from fastflight.errors import FastFlightError, RequestError, SequenceConflict
from fastflight.gap import Gap, Why, microseconds
from fastflight.log.reading import Bounds
from fastflight.log.store_reader import LogReader
from fastflight.log.ticket import Ticket
from fastflight.log.values import MAX_SEQ, Columns
from fastflight.log.writer import Hole

if TYPE_CHECKING:
    from fastflight.log.store import Store


class NewRows(NamedTuple):
    """Rows to append to a log, as many as `length`. The other values are those of `Log.append`."""

    log: Log
    length: int
    expected: int | None = None
    first: int | None = None
    paused_until: int = 0
    gap: Gap | None = None


class Log(LogReader):
    """One log of a `Store`. Any thread may use it.

    It has many readers but only one writer at a time: a second writer notices the first one by the `expected` number.
    """

    def __init__(self, store: Store, number: int, name: str, first: int = 0, following: int = 0) -> None:
        super().__init__(store.content, number, name)
        self._store = store
        # The first number that was not deleted.
        self.first = first
        # The number after the last durable row.
        self.durable_end = following
        # The number after the last row of the appends that wait.
        self.assigned_end = following

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
        length = rows.num_rows if isinstance(rows, pa.RecordBatch) else len(rows[0])
        self._store.wait_for_room()
        (ticket,) = self._store.append(rows, [NewRows(self, length, expected, first, paused_until, gap)])
        if isinstance(ticket, FastFlightError):
            raise ticket
        return ticket

    def _bounds(self) -> Bounds:
        return Bounds(self.first, self.durable_end)

    def _hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        return self._store.hold(names)

    def assign(self, rows: NewRows) -> tuple[int, list[Hole]]:
        """Assign numbers to rows. Return the first one, and what is missing before. The store's lock must be held."""
        end = self.assigned_end
        if rows.expected is not None and rows.expected != end:
            raise SequenceConflict(rows.expected, end, where=self.name)
        start = end if rows.first is None else rows.first
        if start < end:
            raise SequenceConflict(start, end, where=self.name)
        if start + rows.length > MAX_SEQ:
            raise RequestError(f"numbers go up to {MAX_SEQ}", where=self.name)
        holes: list[Hole] = []
        used = min(max(end, rows.paused_until), start)
        if used > end:
            holes.append(Hole(end, used - 1, Why.UNUSED))
        if (gap := rows.gap) is not None:
            times = microseconds(gap.from_time), microseconds(gap.to_time)
            holes.append(Hole(used, start - 1, gap.why, *times, gap.bytes))
        elif start > used:
            holes.append(Hole(used, start - 1, Why.NOT_READ))
        self.assigned_end = start + rows.length
        return start, holes
