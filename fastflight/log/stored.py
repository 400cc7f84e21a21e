"""The compacted rows of a log as Parquet files, for an engine that reads Parquet itself.

A part's Parquet file has the rows of many logs. A `StoredFile` is that file with a footer that names only row groups of
one log; all other bytes are zeros. A row group is verified before any of its bytes is given for the first time. It is
known then, so later readings of the same part cost no checksum.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from fastflight.errors import DataError
from fastflight.log.compacted import Compacted
from fastflight.log.disk import File, LocalFile, failure
from fastflight.log.footer import footer_of
from fastflight.log.index import Entries
from fastflight.log.ranged import RangeItems
from fastflight.log.reading import Snapshot
from fastflight.log.sections import FOOTER
from fastflight.log.segment import read_exactly
from fastflight.log.values import Missing, Range

# Readers of Parquet begin with this much of the end of a file, to have the footer at once. So many zeros are before the
# footer, so that this reads no row group.
TAIL_BYTES = 256 * 1024


class StoredFile:
    """Some row groups of one Parquet file. Any thread may read, one at a time. Close it."""

    def __init__(self, part: Compacted, file: File, numbers: Sequence[int], footer: bytes) -> None:
        self._part = part
        self._file = file
        self._footer = footer
        # In the order of their places.
        self._numbers = sorted(numbers, key=lambda number: part.sections[number].offset)
        self._sections = [part.sections[number] for number in self._numbers]
        self._starts = [section.offset for section in self._sections]
        self._footer_at = self._sections[-1].offset + self._sections[-1].size + TAIL_BYTES
        self.size = self._footer_at + len(footer)
        # Files with the same name have the same footer, so a reader may keep what it knows from it.
        self.name = sha256(footer).hexdigest()
        # Bytes read of row groups.
        self.read_bytes = 0

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; fewer at its end.

        `DataError` if they are damaged, `StorageError` if the disk fails.
        """
        size = max(0, min(size, self.size - offset))
        if (at := self._around(offset, size)) is not None:
            return self._verified(at, offset, size)
        content = bytearray(size)
        for each in range(max(bisect_right(self._starts, offset) - 1, 0), len(self._sections)):
            section = self._sections[each]
            start, stop = max(offset, section.offset), min(offset + size, section.offset + section.size)
            if start < stop:
                content[start - offset : stop - offset] = self._verified(each, start, stop - start)
        if offset + size > self._footer_at:
            start = max(offset, self._footer_at)
            content[start - offset :] = self._footer[start - self._footer_at : offset + size - self._footer_at]
        return bytes(content)

    def descriptor(self, offset: int, size: int) -> int | None:
        """Return the descriptor of a local file that has the same bytes at the same place; None if there is none.

        It counts them as read. `DataError` if they are damaged.
        """
        at = self._around(offset, size)
        if at is None or not isinstance(self._file, LocalFile):
            return None
        self._verify(at, offset, size)
        return self._file.fileno()

    def _around(self, offset: int, size: int) -> int | None:
        """Return the place of the row group that has all of these bytes."""
        at = bisect_right(self._starts, offset) - 1
        return at if at >= 0 and offset + size <= self._starts[at] + self._sections[at].size else None

    def _verify(self, at: int, offset: int, size: int) -> None:
        if not self._part.is_intact(self._numbers[at], self._file):
            raise DataError(
                "a part of this recording is damaged",
                where=f"{self._part.names[self._sections[at].file]} at byte {offset}",
                hint="Run the query again: it leaves out the damaged rows, and counts them as lost",
            )
        self.read_bytes += size

    def _verified(self, at: int, offset: int, size: int) -> bytes:
        self._verify(at, offset, size)
        try:
            return read_exactly(self._file, offset, size)
        except OSError as error:
            raise failure(error, "reading the recordings", self._part.name) from error

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class StoredRows:
    """What a reading wants of the rows of a log below `end`: those from `first` to `last` in `files`, in order.

    Rows from `end` on must be read from the log itself, unless the files have the `whole` answer. `gaps` and `lost`
    count the numbers without rows below `end`.
    """

    end: int
    first: int = 0
    last: int = -1
    files: list[StoredFile] = field(default_factory=list)
    whole: bool = False
    gaps: int = 0
    lost: int = 0

    def close(self) -> None:
        for each in self.files:
            each.close()


def stored_rows(snapshot: Snapshot, number: int, wanted: Range, limit: int | None = None) -> StoredRows:
    """Open the Parquet files at the beginning of a log that a reading of `limit` rows needs. Raises `OSError`."""
    items = RangeItems(wanted)
    items.cursor = max(snapshot.first, items.cursor)
    stop = snapshot.next if wanted.until_seq is None else min(snapshot.next, wanted.until_seq + 1)
    rows = StoredRows(items.cursor)
    try:
        for part in snapshot.parts:
            log_index = part.index.logs.get(number)
            if log_index is None or log_index.next <= rows.end:
                continue
            if not isinstance(part, Compacted) or log_index.begin >= stop:
                break
            limit = _add(rows, part, number, items, stop, limit)
            rows.end = min(log_index.next, stop)
            if rows.end == stop or limit == 0:
                rows.whole = True
                break
    except BaseException:
        rows.close()
        raise
    return rows


def _add(rows: StoredRows, part: Compacted, number: int, items: RangeItems, stop: int, limit: int | None) -> int | None:
    """Add what a reading needs of one part. Return how many rows of `limit` are left."""
    entries = part.entries(number) or Entries()
    files: set[int] = set()
    for i in range(entries.index_from(items.cursor), entries.index_until(stop)):
        entry = entries[i]
        last = min(entry.last, stop - 1)
        holes: list[Missing] = []
        if entry.first > items.cursor:
            holes += items.hole(entry.first - 1, "damaged", part.name)
        if not entry.size:
            holes += items.hole(last, "not recorded" if entry.is_pause else "never written")
        elif not items.overlap(entry.first_time, entry.last_time):
            items.skip(last + 1)
        elif part.checked.get(entry.offset) is False:
            holes += items.damaged(last, part.name)
        else:
            if rows.last < 0:
                rows.first = items.cursor
            if limit is not None:
                last = min(last, items.cursor + limit - 1)
                limit -= last + 1 - items.cursor
            rows.last = last
            files.add(part.sections[entry.offset].file)
            holes += items.inside(last + 1)
        missing = [hole for hole in holes if hole.reason != "not recorded"]
        rows.gaps += len(missing)
        rows.lost += sum(hole.last + 1 - hole.first for hole in missing)
        if limit == 0:
            break
    for file_number in sorted(files):
        if (file := _open(part, file_number, number, entries)) is not None:
            rows.files.append(file)
    return limit


def _open(part: Compacted, file_number: int, number: int, entries: Entries) -> StoredFile | None:
    """Open a Parquet file, with all row groups of one log that are not known to be damaged; None without any."""
    counts: Counter[int] = Counter()
    for entry in entries:
        if entry.size and part.sections[entry.offset].file == file_number and part.checked.get(entry.offset, True):
            counts[entry.offset] += entry.rows
    footer = part.footer_bytes(file_number)
    if footer is None or not counts:
        return None
    groups = tuple(part.sections[each].group for each in counts)
    if len(groups) < sum(section.file == file_number and section.group != FOOTER for section in part.sections):
        known = part.footers.get((file_number, number))
        if known is None or known[0] != groups:
            known = part.footers[file_number, number] = groups, footer_of(footer, groups, counts.total())
        footer = known[1]
    return StoredFile(part, part.disk.open(part.names[file_number]), list(counts), footer)
