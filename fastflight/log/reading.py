"""Reads a log from the parts that have its rows. Yields the rows in order, and reports missing numbers.

A part may be removed during a read, because it was compacted or deleted by retention. Reading then takes a new snapshot
and continues at the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.log.content import TIME_COLUMN, Codec
from fastflight.log.disk import failure
from fastflight.log.index import BEGINNING, END_OF_TIME, Entries, Index, IndexEntry
from fastflight.log.segment import ReadResult
from fastflight.log.values import Missing, NumberedRows, Range, Reason


class StorePart(Protocol):
    """A part of a store: a segment, or the files that segments were compacted to. Parts are in the order of appends."""

    index: Index

    @property
    def ordinal(self) -> int:
        """The number of its first segment."""

    @property
    def last_ordinal(self) -> int:
        """The number of its last segment."""

    @property
    def files(self) -> list[str]:
        """The names of its files. The part does not exist without the first one."""

    @property
    def name(self) -> str:
        """The name of its first file."""

    @property
    def size(self) -> int:
        """The size of its data, in bytes."""

    def entries(self, number: int) -> Entries | None:
        """Return the entries of a log; None if it has none here."""

    def read(
        self, entries: Entries, start: int, stop: int, number: int, codec: Codec
    ) -> Generator[ReadResult, None, None]:
        """Yield a `ReadResult` for each of `entries[start:stop]`: its batch, or the reason why it cannot be read."""


class Snapshot(NamedTuple):
    """A log at one moment: its parts, the first number that is not trimmed, and the next number."""

    parts: list[StorePart]
    first: int
    next: int


class SnapshotSource(Protocol):
    """Gives snapshots of the logs of one store: a `Store` or a `StoreReader`."""

    def snapshot(self, number: int) -> Snapshot:
        """Return the present snapshot of a log."""


T = TypeVar("T")
# A compaction may remove a part between the listing of the folder and the opening of a file. Then list again.
READ_ATTEMPTS = 5


def retry_missing(read: Callable[[], T]) -> T:
    """Return the result of `read`, which reads files. Call it again if a file is missing.

    Raises `StorageError` if the disk fails, or a file is missing at each attempt.
    """
    for left in reversed(range(READ_ATTEMPTS)):
        try:
            return read()
        except OSError as error:
            if not left or not isinstance(error, FileNotFoundError):
                raise failure(error, "reading the recordings") from error
    raise AssertionError("the last attempt returns or raises")


class LogReading:
    """One pass over a log, for the range `wanted`. `run` yields its rows and its missing numbers."""

    def __init__(self, source: SnapshotSource, number: int, codec: Codec, wanted: Range) -> None:
        self._source = source
        self._number = number
        self._codec = codec
        self._from = BEGINNING if wanted.from_time is None else wanted.from_time
        self._until = END_OF_TIME if wanted.until_time is None else wanted.until_time
        self._timed = wanted.from_time is not None or wanted.until_time is not None
        self._wanted = wanted
        # The number to read next.
        self._cursor = max(wanted.from_seq or 0, 0)
        # With a time range, only holes next to rows in the range are reported. These wait for such a row.
        self._holes: list[Missing] = []
        self._inside = not self._timed

    def run(self) -> Generator[NumberedRows | Missing, None, None]:
        snapshot = self._source.snapshot(self._number)
        stop = snapshot.next if self._wanted.until_seq is None else min(snapshot.next, self._wanted.until_seq + 1)
        gone: set[str] = set()
        while True:
            if self._cursor < min(snapshot.first, stop):
                if self._wanted.from_seq is not None or gone:
                    yield from self._hole(min(snapshot.first, stop) - 1, "trimmed")
                self._cursor = min(snapshot.first, stop)
            for part in snapshot.parts:
                if part.name in gone:
                    continue  # Missing in two snapshots: its file was deleted. Its rows are reported as missing.
                try:
                    yield from self._part(part, stop)
                except FileNotFoundError:
                    gone.add(part.name)
                    break
                except OSError as error:
                    raise failure(error, "reading the recordings", part.name) from error
            else:
                break
            snapshot = self._source.snapshot(self._number)
        if self._cursor < stop:
            yield from self._hole(stop - 1, "damaged")

    def _part(self, part: StorePart, stop: int) -> Iterator[NumberedRows | Missing]:
        log_index = part.index.logs.get(self._number)
        if log_index is None or log_index.next <= self._cursor or log_index.begin >= stop:
            return
        if self._timed and not self._overlaps(log_index.first_time, log_index.last_time):
            yield from self._skip(part, log_index.begin, min(log_index.next, stop))
            return
        entries = part.entries(self._number)
        if entries is None:
            return
        i, j = entries.index_from(self._cursor), entries.index_until(stop)
        while i < j:
            entry = entries[i]
            if self._timed and not self._overlaps(entry.first_time, entry.last_time) and entry.size:
                yield from self._skip(part, entry.first, min(entry.last + 1, stop))
                i += 1
                continue
            end = i + 1
            while end < j and (not self._timed or self._overlaps_entry(entries[end])):
                end += 1
            for read in part.read(entries, i, end, self._number, self._codec):
                yield from self._entry(part, read, stop)
            i = end

    def _entry(self, part: StorePart, read: ReadResult, stop: int) -> Iterator[NumberedRows | Missing]:
        entry = read.entry
        if entry.first > self._cursor:
            yield from self._hole(entry.first - 1, "damaged", part.name)
        last = min(entry.last, stop - 1)
        if last < self._cursor:
            return
        if not entry.size:
            yield from self._hole(last, "not recorded" if entry.is_pause else "never written")
        elif read.batch is None:
            self._inside = True
            yield from self._flush()
            yield Missing(self._cursor, last, "damaged", read.reason)
        else:
            yield from self._rows(read.batch.slice(self._cursor - entry.first, last - self._cursor + 1), entry)
        self._cursor = last + 1

    def _rows(self, batch: pa.RecordBatch, entry: IndexEntry) -> Iterator[NumberedRows | Missing]:
        """Yield the rows of `batch` that are in the time range, in runs. `batch` starts at the cursor."""
        if entry.first_time >= self._from and entry.last_time < self._until:
            self._inside = True
            yield from self._flush()
            yield NumberedRows(self._cursor, batch)
            return
        times = batch.column(batch.schema.get_field_index(TIME_COLUMN)).view(pa.int64())
        inside = pc.and_(pc.greater_equal(times, self._from), pc.less(times, self._until)).to_pylist()
        if inside[0]:
            yield from self._flush()
        self._holes.clear()
        self._inside = inside[-1]
        at = 0
        while at < len(inside):
            end = at
            while end < len(inside) and inside[end] == inside[at]:
                end += 1
            if inside[at]:
                yield NumberedRows(self._cursor + at, batch.slice(at, end - at))
            at = end

    def _skip(self, part: StorePart, first: int, end: int) -> Iterator[Missing]:
        """Move the cursor to `end`, over rows that are not in the time range."""
        if first > self._cursor:
            yield from self._hole(first - 1, "damaged", part.name)
        self._holes.clear()
        self._inside = False
        self._cursor = max(self._cursor, end)

    def _hole(self, last: int, reason: Reason, where: str = "") -> Iterator[Missing]:
        """Report the numbers from the cursor to `last` as missing, and move the cursor behind them."""
        hole = Missing(self._cursor, last, reason, where)
        self._cursor = last + 1
        if self._inside:
            yield hole
        else:
            self._holes.append(hole)

    def _flush(self) -> Iterator[Missing]:
        yield from self._holes
        self._holes.clear()

    def _overlaps(self, first_time: int, last_time: int) -> bool:
        return first_time < self._until and last_time >= self._from

    def _overlaps_entry(self, entry: IndexEntry) -> bool:
        return not entry.size or self._overlaps(entry.first_time, entry.last_time)
