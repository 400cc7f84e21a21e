"""Segments: files of records, written at the end and read anywhere.

Reading copies the bytes into memory, for two reasons. The verified bytes stay the same, whatever happens to the file
later. And a bad sector raises an `OSError` from `read`; if the file were mapped, it would kill the process. Batches
refer to this copy and are not copied again.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from fastflight.log.content import Codec, decode_state
from fastflight.log.disk import Disk, File
from fastflight.log.index import Entries, Index, IndexEntry, stored_entries
from fastflight.log.record import (
    RECORD_HEADER,
    SEGMENT_HEADER,
    FoundRecord,
    Header,
    RecordKind,
    find_record,
    is_unfinished,
    parse_segment_header,
    scan_records,
    scan_shifted_records,
)

# The salt is also in the name, so that a damaged header does not make the whole segment unreadable.
SEGMENT_NAME = re.compile(r"(\d{12})-([0-9a-f]{16})\.seg")
# The size of one read: enough for the speed of the disk. A batch that is still referenced keeps this much in memory.
SPAN_BYTES = 4 * 1024 * 1024
# Up to this many bytes of other logs' records, reading over them is cheaper than another call.
HOLE_BYTES = 64 * 1024
# The most small records to join: as separate batches, 256 of them take a megabyte. Joining larger ones gains nothing.
JOINED_RECORDS = 256
JOINED_BYTES = 1024 * 1024
# A file is scanned in pieces of this size. If one cannot be read, it is read by sectors, so that little else is lost.
PIECE_BYTES = 1024 * 1024
SECTOR_BYTES = 4096


def segment_name(ordinal: int, salt: int) -> str:
    return f"{ordinal:012d}-{salt:016x}.seg"


def parse_segment_name(name: str) -> tuple[int, int]:
    """Return the ordinal and the salt in a segment's name."""
    match = SEGMENT_NAME.fullmatch(name)
    assert match is not None
    return int(match[1]), int(match[2], 16)


def sidecar_name(name: str) -> str:
    return name.rpartition(".")[0] + ".idx"


class ReadResult(NamedTuple):
    """The result of reading an entry: its batch, or None and the reason; no reason if it has no rows."""

    entry: IndexEntry
    batch: pa.RecordBatch | None
    reason: str = ""


@dataclass(slots=True, eq=False)
class Segment:
    """A segment of the store, with the index of its file. `end` is the offset after the last valid record."""

    disk: Disk
    name: str
    ordinal: int
    end: int
    index: Index = field(default_factory=Index)
    # Offsets from which on records are not where they were written, each with the distance.
    shifts: list[tuple[int, int]] = field(default_factory=list)
    # Whether nothing more is written to it.
    closed: bool = False

    @property
    def last_ordinal(self) -> int:
        return self.ordinal

    @property
    def files(self) -> list[str]:
        """The names of its files. The part does not exist without the first one."""
        return [self.name, sidecar_name(self.name)]

    @property
    def size(self) -> int:
        return self.end

    def entries(self, number: int) -> Entries | None:
        """Return the entries of a log; None if it has none here.

        Scans the file if its sidecar is damaged or missing.
        """
        log_index = self.index.logs.get(number)
        if log_index is None:
            return None
        if log_index.entries is None:
            log_index.entries = stored_entries(log_index, self.disk, sidecar_name(self.name))
        if log_index.entries is None:
            scanned = scan_segment(self.disk, self.name, closed=True)
            self.index, self.shifts = scanned.index, scanned.shifts
            log_index = self.index.logs.get(number)
        return log_index.entries if log_index is not None else None

    def read(
        self, entries: Entries, start: int, stop: int, number: int, codec: Codec
    ) -> Generator[ReadResult, None, None]:
        """Yield the batches of `entries[start:stop]`. The file is open until the iterator ends or is closed."""
        with closing(self._bodies(entries, start, stop, number)) as bodies:
            for entry, body, reason in bodies:
                yield ReadResult(entry, codec.decode(body) if body is not None else None, reason)

    def read_joined(
        self, entries: Entries, start: int, stop: int, number: int, codec: Codec
    ) -> Generator[ReadResult, None, None]:
        """As `read`, but join small records whose rows follow each other without a hole into one batch.

        A call to Arrow releases the interpreter's lock. If other threads want the lock, a call for each small record
        takes 5 ms.
        """
        # Copies of the bodies: a slice would keep the whole span in memory, which is mostly records of other logs.
        lot: list[tuple[IndexEntry, bytes]] = []
        size = 0
        with closing(self._bodies(entries, start, stop, number)) as bodies:
            for entry, body, reason in bodies:
                apart = body is None or (bool(lot) and entry.first != lot[-1][0].last + 1)
                if lot and (apart or len(lot) == JOINED_RECORDS or size >= JOINED_BYTES):
                    yield _decode_joined(lot, codec)
                    lot, size = [], 0
                if body is None:
                    yield ReadResult(entry, None, reason)
                else:
                    lot.append((entry, body.to_pybytes()))
                    size += entry.size
        if lot:
            yield _decode_joined(lot, codec)

    def _bodies(
        self, entries: Entries, start: int, stop: int, number: int
    ) -> Generator[tuple[IndexEntry, pa.Buffer | None, str], None, None]:
        """Yield for each entry its record's body, whose checksum was verified, or None and the reason."""
        file = self.disk.open(self.name)
        try:
            while start < stop:
                span = _span(entries, start, stop)
                yield from self._read_span(file, span, number)
                start += len(span)
        finally:
            file.close()

    def _read_span(
        self, file: File, span: list[IndexEntry], number: int
    ) -> Generator[tuple[IndexEntry, pa.Buffer | None, str], None, None]:
        stored = [entry for entry in span if entry.size]
        origin = stored[0].offset if stored else 0
        try:
            data = read_exactly(file, origin, stored[-1].offset + stored[-1].size - origin) if stored else b""
        except OSError:
            if len(span) > 1:  # read the records one by one, to lose only the one with the bad sector
                for entry in span:
                    yield from self._read_span(file, [entry], number)
            else:
                self.index.add_damage(origin, span[0].size)
                yield span[0], None, f"{self.name} can not be read at byte {origin}"
            return
        view, buffer = memoryview(data), pa.py_buffer(data)
        for entry in span:
            if not entry.size:
                yield entry, None, ""
                continue
            at = entry.offset - origin
            found = find_record(view, at, self.index.salt, entry.offset - self._shift(entry.offset))
            if found is not None and _matches(found, entry, number):
                yield entry, buffer.slice(at + RECORD_HEADER.size, found.header.length), ""
            else:
                self.index.add_damage(entry.offset, entry.size)
                yield entry, None, f"{self.name} is damaged at byte {entry.offset}"

    def _shift(self, offset: int) -> int:
        """Return how far a record at `offset` is behind the place where it was written."""
        return next((shift for place, shift in reversed(self.shifts) if place <= offset), 0)


def _decode_joined(lot: list[tuple[IndexEntry, bytes]], codec: Codec) -> ReadResult:
    entries = [entry for entry, _ in lot]
    whole = IndexEntry(
        entries[0].offset,
        sum(entry.size for entry in entries),
        entries[0].first,
        sum(entry.rows for entry in entries),
        min(entry.first_time for entry in entries),
        max(entry.last_time for entry in entries),
    )
    return ReadResult(whole, codec.decode_joined([body for _, body in lot]))


def _matches(found: FoundRecord, entry: IndexEntry, number: int) -> bool:
    header = found.header
    return (
        found.intact
        and header.kind == RecordKind.BATCH
        and header.log_number == number
        and header.first == entry.first
        and header.rows == entry.rows
    )


def _span(entries: Entries, start: int, stop: int) -> list[IndexEntry]:
    """Return the entries from `start` on to read in one call: near to each other, and within `SPAN_BYTES`."""
    span: list[IndexEntry] = []
    begin = end = -1
    for i in range(start, stop):
        entry = entries[i]
        if entry.size:
            far = begin >= 0 and (entry.offset - end > HOLE_BYTES or entry.offset + entry.size - begin > SPAN_BYTES)
            if far:
                break
            begin = entry.offset if begin < 0 else begin
            end = entry.offset + entry.size
        span.append(entry)
    return span


def read_exactly(file: File, offset: int, size: int) -> bytes:
    data = file.read(offset, size)
    while len(data) < size and (more := file.read(offset + len(data), size - len(data))):
        data += more
    return data


def read_damaged(file: File, start: int, stop: int) -> bytes:
    """Return all bytes from `start` to `stop`, with zeros for bytes that cannot be read."""
    pieces: list[bytes] = []
    while start < stop:
        size = min(PIECE_BYTES, stop - start)
        try:
            piece = file.read(start, size)
        except OSError:
            piece = _by_sectors(file, start, start + size)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _by_sectors(file: File, start: int, stop: int) -> bytes:
    pieces: list[bytes] = []
    while start < stop:
        end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, stop)
        try:
            pieces.append(read_exactly(file, start, end - start).ljust(end - start, b"\0"))
        except OSError:
            pieces.append(bytes(end - start))
        start = end
    return b"".join(pieces)


def scan_segment(disk: Disk, name: str, *, closed: bool) -> Segment:
    """Build a segment from the bytes of its file; `index.damage` has the damaged places before `end`.

    With `closed`, nothing more is written to it, and `end` is the end of the file. Otherwise `end` is after the last
    intact record, where writing continues. The bytes after it belong to a write that runs or was not finished. If they
    do not look like one, the segment is damaged there, and is closed as well.
    """
    file = disk.open(name)
    try:
        size = file.size()
        header = parse_segment_header(read_damaged(file, 0, min(size, SEGMENT_HEADER.size)))
        ordinal, salt = parse_segment_name(name)
        segment = Segment(disk, name, ordinal, min(size, SEGMENT_HEADER.size), Index(salt), closed=closed)
        if header is not None and header[:2] == (salt, ordinal):
            segment.index.created = header.created
        elif size > SEGMENT_HEADER.size:
            segment.index.add_damage(0, SEGMENT_HEADER.size)
        broken, tail = _scan(file, segment, size)
        if segment.shifts or not is_unfinished(tail, salt, segment.end):
            segment.closed = True
        if segment.closed:
            for found in broken:
                add_record(segment, found.offset, found.size, found.header, None)
            if segment.end < size:
                segment.index.add_damage(segment.end, size - segment.end)
                segment.end = size
        # If the header is damaged, retention uses the latest time in the segment instead.
        segment.index.created = segment.index.created or max(segment.index.last_time, 0)
        return segment
    finally:
        file.close()


def scan_appended(segment: Segment) -> bool:
    """Add the records that were appended to a segment since it was scanned.

    Return False if the segment must be scanned again from its beginning.
    """
    file = segment.disk.open(segment.name)
    try:
        size = file.size()
        if size == segment.end:
            return True
        if size < segment.end or segment.closed:
            return False
        _scan(file, segment, size)
        return True
    finally:
        file.close()


def _scan(file: File, segment: Segment, size: int) -> tuple[list[FoundRecord], bytes]:
    """Add the records from `segment.end` on to the index, up to the last intact one.

    Return the records after that one, which are not intact, and all bytes after it.
    """
    origin = segment.end
    data = read_damaged(file, origin, size)
    view, waiting = memoryview(data), list[FoundRecord]()
    for found in scan_records(data, segment.index.salt, origin):
        if not found.intact:
            waiting.append(found)
            continue
        # A broken record before an intact one is damaged. Only at the end can it be an unfinished write.
        for broken in waiting:
            add_record(segment, broken.offset, broken.size, broken.header, None)
        waiting.clear()
        _add_found(segment, found, view, origin)
    behind = segment.end
    for found, shift in scan_shifted_records(data[behind - origin :], segment.index.salt, behind):
        for broken in [each for each in waiting if each.offset + each.size <= found.offset]:
            add_record(segment, broken.offset, broken.size, broken.header, None)
        waiting.clear()
        if not segment.shifts or segment.shifts[-1][1] != shift:
            segment.shifts.append((found.offset, shift))
        _add_found(segment, found, view, origin)
    return waiting, data[segment.end - origin :]


def _add_found(segment: Segment, found: FoundRecord, view: memoryview, origin: int) -> None:
    body = view[found.offset - origin + RECORD_HEADER.size :][: found.header.length]
    add_record(segment, found.offset, found.size, found.header, body)


def add_record(segment: Segment, offset: int, size: int, header: Header, body: bytes | memoryview | None) -> None:
    """Add a record at `offset` to the index of `segment`. `body` is None if only the header is intact."""
    index = segment.index
    if offset > segment.end:
        index.add_damage(segment.end, offset - segment.end)
    segment.end = offset + size
    if body is None:
        index.add_damage(offset, size)
    if header.kind == RecordKind.STATE:
        if body is not None:
            index.set_state(decode_state(body))
        return
    log_index = index.logs.get(header.log_number) or index.add_unnamed(header.log_number, header.first)
    if header.first < log_index.next and len(log_index.entries or ()):
        return  # The record repeats numbers that are already there: each number is used once.
    batch = header.kind == RecordKind.BATCH
    place = (offset, size) if batch else (0, 0)
    log_index.add(IndexEntry(*place, header.first, header.rows, header.first_time, header.last_time))


def load_segment(disk: Disk, name: str) -> Segment:
    """Load a closed segment from its sidecar, or scan it if the sidecar is missing or damaged."""
    file = disk.open(name)
    try:
        size = file.size()
    finally:
        file.close()
    ordinal, salt = parse_segment_name(name)
    index = _sidecar(disk, name, size)
    if index is not None and index.salt == salt:
        return Segment(disk, name, ordinal, size, index, closed=True)
    return scan_segment(disk, name, closed=True)


def _sidecar(disk: Disk, name: str, size: int) -> Index | None:
    try:
        file = disk.open(sidecar_name(name))
    except OSError:
        return None
    try:
        return Index.decode(file.read, size)
    except OSError:
        return None
    finally:
        file.close()
