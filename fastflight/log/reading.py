"""Reads a log from the parts that have its rows. Yields the rows in order, and reports missing numbers.

A part may be removed during a read, because it was compacted or deleted by retention. Reading then takes a new snapshot
and continues at the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, Protocol, TypeVar

from fastflight.log.content import Codec
from fastflight.log.disk import failure
from fastflight.log.index import Entries, Index
from fastflight.log.ranged import RangeItems
from fastflight.log.segment import ReadResult
from fastflight.log.values import Missing, NumberedRows, Range


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
    """One pass over a log, for the range `wanted`. `run` yields its rows and its missing numbers.

    `items` is given for a log whose other rows are elsewhere: the pass goes on where it stands.
    """

    def __init__(
        self, source: SnapshotSource, number: int, codec: Codec, wanted: Range, items: RangeItems | None = None
    ) -> None:
        self._source = source
        self._number = number
        self._codec = codec
        self._wanted = wanted
        self._items = RangeItems(wanted) if items is None else items

    def run(self) -> Generator[NumberedRows | Missing, None, None]:
        items = self._items
        snapshot = self._source.snapshot(self._number)
        stop = snapshot.next if self._wanted.until_seq is None else min(snapshot.next, self._wanted.until_seq + 1)
        gone: set[str] = set()
        while True:
            if items.cursor < min(snapshot.first, stop):
                if self._wanted.from_seq is not None or gone:
                    yield from items.hole(min(snapshot.first, stop) - 1, "trimmed")
                items.cursor = min(snapshot.first, stop)
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
        if items.cursor < stop:
            yield from items.hole(stop - 1, "damaged")

    def _part(self, part: StorePart, stop: int) -> Iterator[NumberedRows | Missing]:
        items = self._items
        log_index = part.index.logs.get(self._number)
        if log_index is None or log_index.next <= items.cursor or log_index.begin >= stop:
            return
        if not items.overlap(log_index.first_time, log_index.last_time):
            yield from self._skip(part, log_index.begin, min(log_index.next, stop))
            return
        entries = part.entries(self._number)
        if entries is None:
            return
        i, j = entries.index_from(items.cursor), entries.index_until(stop)
        while i < j:
            entry = entries[i]
            if entry.size and not items.overlap(entry.first_time, entry.last_time):
                yield from self._skip(part, entry.first, min(entry.last + 1, stop))
                i += 1
                continue
            end = i + 1
            while end < j and (not entries[end].size or items.overlap(entries[end].first_time, entries[end].last_time)):
                end += 1
            for read in part.read(entries, i, end, self._number, self._codec):
                yield from self._entry(part, read, stop)
            i = end

    def _entry(self, part: StorePart, read: ReadResult, stop: int) -> Iterator[NumberedRows | Missing]:
        entry, items = read.entry, self._items
        if entry.first > items.cursor:
            yield from items.hole(entry.first - 1, "damaged", part.name)
        last = min(entry.last, stop - 1)
        if last < items.cursor:
            return
        if not entry.size:
            yield from items.hole(last, "not recorded" if entry.is_pause else "never written")
        elif read.batch is None:
            yield from items.damaged(last, read.reason)
        else:
            batch = read.batch.slice(items.cursor - entry.first, last - items.cursor + 1)
            yield from items.rows(batch, entry.first_time, entry.last_time)

    def _skip(self, part: StorePart, first: int, end: int) -> Iterator[Missing]:
        """Move the cursor to `end`, over rows that are not in the time range."""
        if first > self._items.cursor:
            yield from self._items.hole(first - 1, "damaged", part.name)
        self._items.skip(end)
