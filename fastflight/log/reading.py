"""Reads a log from its entries: yields its rows in order, and the numbers that are missing.

Bodies may be replaced or removed during a read, by a compaction or by retention. Reading then asks again, and continues
at the same number. No statement is open while rows are yielded.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fastflight.gap import Gap, Why
from fastflight.log.bodies import decode, joined, rows_in
from fastflight.log.database import Database, Entry
from fastflight.log.disk import failure
from fastflight.log.ranged import RangeItems
from fastflight.log.values import NumberedRows, Range

# Decoded bodies of the tail that are kept, because what was appended last is read for one log after another.
CACHED_BYTES = 16 * 1024 * 1024


class Gone(Exception):
    """A body has been replaced or removed since its entry was read."""


class Bounds(NamedTuple):
    """The first number of a log that was not deleted, and the number after its last durable row."""

    first: int
    next: int


class Content:
    """The bodies of a folder, decoded and verified. Any thread may use it. `damaged` names the places that readings
    of logs have found damaged, by the log and the body.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.damaged: dict[tuple[int, int], str] = {}
        self._cached: OrderedDict[int, pa.RecordBatch] = OrderedDict()
        self._cached_bytes = 0
        self._caching = threading.Lock()
        self._intact: set[int] = set()

    def body(self, number: int) -> pa.RecordBatch | None:
        """Return the rows of a body; None if it is damaged. Raises `Gone`."""
        if (cached := self._cached.get(number)) is not None:
            return cached
        stored = self.database.body(number)
        if stored is None:
            raise Gone
        try:
            data = self.database.disk.read(stored.file) if stored.file is not None else stored.data
        except FileNotFoundError:
            raise Gone from None
        except OSError as error:
            if error.errno != errno.EIO:
                raise failure(error, "reading the recordings") from error
            data = None  # a bad sector
        rows = decode(data or b"", stored.crc, stored.log if stored.file is not None else None)
        if rows is not None and stored.file is None and rows.nbytes <= CACHED_BYTES // 4:
            self._keep(number, rows)
        return rows

    def is_intact(self, number: int) -> bool:
        """Whether a Parquet file is there and has the bytes that were written. Looks once at each file."""
        with contextlib.suppress(Gone):
            if number not in self._intact and self.body(number) is not None:
                self._intact.add(number)
        return number in self._intact

    def place(self, number: int) -> str:
        """Name where a body is."""
        stored = self.database.body(number)
        return "" if stored is None else stored.place(number)

    def _keep(self, number: int, rows: pa.RecordBatch) -> None:
        with self._caching:
            if number in self._cached:
                return
            self._cached[number] = rows
            self._cached_bytes += rows.nbytes
            while self._cached_bytes > CACHED_BYTES:
                self._cached_bytes -= self._cached.popitem(last=False)[1].nbytes


class LogReading:
    """One pass over a log, for the range `wanted`. `run` yields its rows and its missing numbers."""

    def __init__(self, content: Content, log: int, bounds: Callable[[], Bounds], wanted: Range) -> None:
        self._content = content
        self._log = log
        self._bounds = bounds
        self._wanted = wanted
        self._items = RangeItems(wanted)
        # The number at which a body was gone. If one is gone there again, it is damaged.
        self._gone_at = -1
        # The number before which a gap without numbers was reported last. There is one at most before each number.
        self._told = -1
        # Rows from the cursor on that are to be yielded together, and their earliest and latest times.
        self._waiting: list[pa.RecordBatch] = []
        self._times: list[int] = []

    def run(self) -> Generator[NumberedRows | Gap, None, None]:
        items, bounds = self._items, self._bounds()
        stop = bounds.next if self._wanted.until_seq is None else min(bounds.next, self._wanted.until_seq + 1)
        # Before the first row, deleted numbers are reported only if they were asked for.
        begun = self._wanted.from_seq is not None
        while items.cursor < stop:
            first, entries = self._content.database.entries(self._log, items.cursor, stop)
            if items.cursor < (first := min(max(first, bounds.first), stop)):
                if begun:
                    yield from items.hole(first - 1, Why.CLEARED)
                items.cursor = first
            elif not entries:
                yield from items.damaged(stop - 1, "")
            else:
                with contextlib.suppress(Gone):
                    yield from self._page(entries, stop)
            begun = True

    def _page(self, entries: Sequence[Entry], stop: int) -> Iterator[NumberedRows | Gap]:
        items = self._items
        for entry in entries:
            if entry.end < self._at + bool(entry.rows) or (not entry.rows and entry.first == self._told):
                continue  # reported already, or of damaged tables
            is_wanted = not entry.why and items.overlap(entry.first_time, entry.last_time)
            if not is_wanted or entry.first > self._at:
                yield from self._flush()
            if entry.first > self._at:
                yield from items.damaged(entry.first - 1, "")
            first, end = max(self._at, entry.first), min(entry.end, stop)
            if entry.why:
                self._told = self._told if entry.rows else first
                size = entry.bytes if (first, end) == (entry.first, entry.end) else None
                yield from items.hole(end - 1, entry.why, "", entry.first_time, entry.last_time, size)
            elif not is_wanted:
                items.skip(end)
            elif (rows := (yield from self._rows(entry))) is None:
                yield from self._flush()
                place = self._content.damaged[self._log, entry.body] = self._content.place(entry.body)
                yield from items.damaged(end - 1, place, entry.first_time, entry.last_time)
            else:
                self._waiting.append(rows.slice(first - entry.first, end - first))
                self._times += entry[2:4]
        yield from self._flush()

    @property
    def _at(self) -> int:
        """The number after the rows that wait."""
        return self._items.cursor + sum(int(each.num_rows) for each in self._waiting)

    def _flush(self) -> Iterator[NumberedRows | Gap]:
        """Yield the rows that wait as one batch: boards that print little have a row in each entry."""
        if self._waiting:
            waiting, times = self._waiting, self._times
            self._waiting, self._times = [], []
            yield from self._items.rows(joined(waiting), min(times), max(times))

    def _rows(self, entry: Entry) -> Generator[NumberedRows | Gap, None, pa.RecordBatch | None]:
        """Return the rows of an entry; None if they are damaged. Raises `Gone`, after the rows that wait."""
        try:
            body = self._content.body(entry.body)
        except Gone:
            yield from self._flush()
            if self._gone_at == self._items.cursor:
                return None
            self._gone_at = self._items.cursor
            raise
        if body is None:
            return None
        return rows_in(body, self._log, entry.at, entry.first, entry.rows)
