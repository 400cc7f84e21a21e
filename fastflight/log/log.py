"""A log to append to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from fastflight.errors import RequestError, SequenceConflict
from fastflight.gap import Gap, Why, microseconds
from fastflight.log.reading import LogReader
from fastflight.log.values import MAX_SEQ, Entry
from fastflight.log.writer import Ticket

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
        # The number that the next appended row gets: the one after the appends that wait.
        self.next_seq = following

    def append(
        self,
        rows: pa.RecordBatch,
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
        `DataError` for a batch that does not fit the log.
        """
        self._store.wait_for_room()
        (ticket,) = self._store.append(rows, [NewRows(self, rows.num_rows, expected, first, paused_until, gap)])
        if ticket.last < ticket.first:
            ticket.result()  # raises why it is refused
        return ticket

    def _bounds(self) -> tuple[int, int]:
        return self.first, self.durable_end

    def _hold(self, names: list[str]) -> contextlib.AbstractContextManager[None]:
        return self._store.hold(names)

    def assign(self, rows: NewRows, times: tuple[int, int]) -> list[Entry]:
        """Assign numbers to rows. Return entries of what is missing before them, and theirs. `times` are the earliest
        and the latest of the rows. The store's lock must be held.
        """
        end = self.next_seq
        if rows.expected is not None and rows.expected != end:
            raise SequenceConflict(rows.expected, end, where=self.name)
        start = end if rows.first is None else rows.first
        if start < end:
            raise SequenceConflict(start, end, where=self.name)
        if start + rows.length > MAX_SEQ:
            raise RequestError(f"numbers go up to {MAX_SEQ}", where=self.name)
        entries: list[Entry] = []
        used = min(max(end, rows.paused_until), start)
        if used > end:
            entries.append(Entry(end, used - end, why=Why.UNUSED.value))
        if (gap := rows.gap) is not None:
            between = microseconds(gap.from_time), microseconds(gap.to_time)
            entries.append(Entry(used, start - used, *between, bytes=gap.bytes, why=str(gap.why)))
        elif start > used:
            entries.append(Entry(used, start - used, why=Why.NOT_READ.value))
        self.next_seq = start + rows.length
        return [*entries, Entry(start, rows.length, *times)]
