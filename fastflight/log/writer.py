"""Writes records to segments. A group of records is stored only if all calls to the disk succeed.

A `SegmentWriter` belongs to one thread at a time. `write` appends a group of records to the newest segment and returns
when they are on the medium. If any call fails, the writer cuts the segment back to where the group began, and syncs
that. It writes nothing else until this has succeeded. So the sequence numbers of a failed group can be used again. The
data of a failed sync is not synced again, because the system may then report pages as written that never reached the
disk.

If the disk has no room, the newest segment is closed, so that it can be deleted when the retention no longer covers it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from fastflight.log.content import LogState, encode_state
from fastflight.log.disk import NO_ROOM, Disk, File, write_all, write_new
from fastflight.log.index import LOST, Index
from fastflight.log.record import SEGMENT_HEADER, Header, RecordKind, encode_record, record_size, segment_header
from fastflight.log.reserve import Reserve
from fastflight.log.segment import Segment, add_record, segment_name, sidecar_name

# The most records in a segment. After a crash the newest segment is scanned, which takes about 10 us for each record.
SEGMENT_RECORDS = 32 * 1024


class NewRecord(NamedTuple):
    """A record to write, by `kind`: rows, numbers that are left out, or only the log's `state`."""

    kind: RecordKind
    state: LogState
    log_number: int
    first: int = 0
    rows: int = 0
    times: tuple[int, int] = LOST
    body: bytes | memoryview = b""
    crc: int = 0


class WrittenRecord(NamedTuple):
    """A record in the file: its place, its header and its body."""

    offset: int
    size: int
    header: Header
    body: bytes | memoryview


class SegmentWriter:
    """Appends to the newest segment, and begins new ones. `segment` is None until there is one."""

    def __init__(
        self,
        disk: Disk,
        reserve: Reserve,
        segment: Segment | None,
        next_ordinal: int,
        segment_bytes: int,
        segment_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.segment = segment
        # When the newest segment was closed because the disk had no room (seconds since 1970).
        self.closed_at: float | None = None
        self._disk = disk
        self._reserve = reserve
        # The name of the next segment, until it was created successfully. So the file of a failed attempt that could
        # not be removed is replaced by the next attempt.
        self._next_ordinal = next_ordinal
        self._next_salt = secrets.randbits(64)
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._clock = clock
        self._file: File | None = None
        # Whether the file may have bytes of a failed group after the segment's end.
        self._needs_rollback = False
        # How many records were added to the segment since it was opened.
        self._records = 0

    def resume(self) -> int:
        """Open the existing segment, cut off an unfinished write, and sync the rest. Return the number of bytes cut."""
        if self.segment is None:
            return 0
        self._file = self._disk.open(self.segment.name, writing=True)
        torn = self._file.size() - self.segment.end
        if torn > 0:
            self._file.truncate(self.segment.end)
        self._file.sync()
        return max(torn, 0)

    def write(self, records: Sequence[NewRecord], *, from_reserve: bool = False) -> list[WrittenRecord]:
        """Write and sync a group. Raises `OSError` if that fails: then nothing of it is stored.

        With `from_reserve`, release the reserve if the disk has no room, and try again.
        """
        try:
            return self._write(records)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if self.closed_at is None and self._has_records():
                self.closed_at = self._clock()
            if not from_reserve or not self._reserve.release():
                raise
        return self._write(records)

    def _write(self, records: Sequence[NewRecord]) -> list[WrittenRecord]:
        self._roll_back()
        segment, file = self._open_segment()
        at = segment.end
        pieces: list[bytes | memoryview] = []
        written: list[WrittenRecord] = []
        named: set[int] = set()
        for record in records:
            if (
                record.kind is not RecordKind.STATE
                and record.log_number not in named
                and record.log_number not in segment.index.logs
            ):
                at = self._encode(_state_record(record.state), segment, at, pieces, written)
            # Also for a STATE record, because the states of later records do not have its changes yet.
            named.add(record.log_number)
            at = self._encode(record, segment, at, pieces, written)
        try:
            self._needs_rollback = True
            write_all(file, pieces)
            file.sync()
            self._needs_rollback = False
            self._records += len(written)
        except OSError:
            with contextlib.suppress(OSError):
                self._roll_back()
            raise
        return written

    def add_to_index(self, written: Sequence[WrittenRecord]) -> None:
        """Add written records to the segment's index, which makes them visible to readers."""
        if self.segment is not None:
            for record in written:
                add_record(self.segment, record.offset, record.size, record.header, record.body)

    def close(self) -> None:
        """Close the file. The segment stays open: the next store continues it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._roll_back()
            self._file.close()
            self._file = None

    def full(self) -> bool:
        """Return whether the next group begins a new segment."""
        if self.segment is None or self._file is None:
            return True
        # The age is negative if the clock was set back. Then begin a new segment: this one would stay open too long.
        age = self._clock() - self.segment.index.created / 1e6
        if not self._has_records():
            return False
        many = self._records >= SEGMENT_RECORDS or self.segment.end >= self._segment_bytes
        return many or self.closed_at is not None or not 0 <= age < self._segment_seconds

    def _has_records(self) -> bool:
        return self.segment is not None and self.segment.end > SEGMENT_HEADER.size

    def _encode(
        self,
        record: NewRecord,
        segment: Segment,
        at: int,
        pieces: list[bytes | memoryview],
        written: list[WrittenRecord],
    ) -> int:
        body, crc = record.body, record.crc
        if record.kind is RecordKind.STATE:
            body = encode_state(record.state)
            crc = crc32(body)
        header = Header(record.kind, crc, record.log_number, record.first, record.rows, len(body), *record.times)
        size = record_size(len(body))
        pieces += encode_record(header, body, segment.index.salt, at)
        written.append(WrittenRecord(at, size, header, body))
        return at + size

    def _roll_back(self) -> None:
        """Cut off the bytes of a failed group."""
        if self._needs_rollback and self._file is not None and self.segment is not None:
            self._file.truncate(self.segment.end)
            self._file.sync()
        self._needs_rollback = False

    def _open_segment(self) -> tuple[Segment, File]:
        """Return the segment to write to, and its file. Begin a new segment if necessary."""
        if self.full():
            segment, file = self._create_segment()
            self._close_segment()
            self.segment, self._file, self._records, self.closed_at = segment, file, 0, None
        assert self.segment is not None and self._file is not None
        return self.segment, self._file

    def _create_segment(self) -> tuple[Segment, File]:
        ordinal, salt, created = self._next_ordinal, self._next_salt, int(self._clock() * 1e6)
        name = segment_name(ordinal, salt)
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(name)  # the file of a failed attempt, which has no rows
        file = self._disk.create(name)
        try:
            write_all(file, [segment_header(salt, ordinal, created)])
            file.sync()
            self._disk.sync_folder()
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(name)
            raise
        self._next_ordinal, self._next_salt = ordinal + 1, secrets.randbits(64)
        return Segment(self._disk, name, ordinal, SEGMENT_HEADER.size, Index(salt, created)), file

    def _close_segment(self) -> None:
        """Close the last segment and write its sidecar. If that fails, readers scan the segment instead."""
        if self._file is not None:
            self._file.close()
        if self.segment is not None:
            with contextlib.suppress(OSError):
                sidecar = list(self.segment.index.encode(self.segment.end))
                write_new(self._disk, sidecar_name(self.segment.name), sidecar)


def _state_record(state: LogState) -> NewRecord:
    return NewRecord(RecordKind.STATE, state, state.number)
