"""Writes records to segments, and decides by the disk's results which of them are stored.

A `SegmentWriter` belongs to one thread at a time. `write` appends a group of records to the newest segment and returns
when they are on the medium. If any call fails, it cuts the segment back to where the group began, and syncs that; until
this has worked it writes nothing. A sequence number that was refused can therefore be used again, and a failed sync is
never repeated: after a failure a system may call pages clean that never reached the disk.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from fastflight.log.content import LogState, encode_state
from fastflight.log.disk import Disk, File, write_all, write_new
from fastflight.log.index import LOST, Index
from fastflight.log.record import SEGMENT_HEADER, Header, RecordKind, frame, record_size, segment_header
from fastflight.log.segment import Segment, segment_name, sidecar_name, take

# After a crash the newest segment is scanned, at about 10 us a record however short.
SEGMENT_RECORDS = 32 * 1024


class Item(NamedTuple):
    """Something to be written: rows, numbers that are left out, or nothing but a log's `state`, as it then is."""

    kind: RecordKind
    state: LogState
    stream: int
    first: int = 0
    rows: int = 0
    times: tuple[int, int] = LOST
    body: bytes | memoryview = b""
    crc: int = 0


class WrittenRecord(NamedTuple):
    """A record on the medium."""

    offset: int
    size: int
    header: Header
    body: bytes | memoryview


class SegmentWriter:
    """Appends to the newest segment. `segment` is None until there is one."""

    def __init__(
        self,
        disk: Disk,
        segment: Segment | None,
        next_ordinal: int,
        segment_bytes: int,
        segment_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.segment = segment
        self._disk = disk
        # One name until it worked: an attempt that failed and could not be removed is not left beside the next one.
        self._next_ordinal = next_ordinal
        self._next_salt = secrets.randbits(64)
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._clock = clock
        self._file: File | None = None
        # Whether the file may hold more than the segment says.
        self._untidy = False
        # In the segment; those from before it was taken up again are not counted.
        self._records = 0

    def resume(self) -> int:
        """Take up the segment there is: cut what never finished, make the rest durable. Returns the bytes cut."""
        if self.segment is None:
            return 0
        self._file = self._disk.open(self.segment.name, writing=True)
        torn = self._file.size() - self.segment.end
        if torn > 0:
            self._file.truncate(self.segment.end)
        self._file.sync()
        return max(torn, 0)

    def write(self, items: Sequence[Item]) -> list[WrittenRecord]:
        """Write and sync a group. `OSError` where that fails: then nothing of it is kept."""
        self._tidy()
        segment, file = self._room()
        at = segment.end
        pieces: list[bytes | memoryview] = []
        written: list[WrittenRecord] = []
        named: set[int] = set()
        for item in items:
            if (
                item.kind is not RecordKind.STATE
                and item.stream not in named
                and item.stream not in segment.index.streams
            ):
                at = self._frame(_state_item(item.state), segment, at, pieces, written)
            named.add(item.stream)  # a state itself, too: rows behind it do not know yet what it says
            at = self._frame(item, segment, at, pieces, written)
        try:
            self._untidy = True
            write_all(file, pieces)
            file.sync()
            self._untidy = False
            self._records += len(written)
        except OSError:
            with contextlib.suppress(OSError):
                self._tidy()
            raise
        return written

    def take(self, written: Sequence[WrittenRecord]) -> None:
        """Let the segment's index know of what was written: from now on it is read."""
        if self.segment is not None:
            for record in written:
                take(self.segment, record.offset, record.size, record.header, record.body)

    def close(self) -> None:
        """Close the file. The segment stays the one to go on with."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._tidy()
            self._file.close()
            self._file = None

    def full(self) -> bool:
        """Whether the next group begins a new segment."""
        if self.segment is None or self._file is None:
            return True
        # Below zero where the clock was set back: it would take that long to be closed.
        age = self._clock() - self.segment.index.created / 1e6
        if self.segment.end <= SEGMENT_HEADER.size:
            return False
        many = self._records >= SEGMENT_RECORDS
        return many or self.segment.end >= self._segment_bytes or not 0 <= age < self._segment_seconds

    def _frame(
        self, item: Item, segment: Segment, at: int, pieces: list[bytes | memoryview], written: list[WrittenRecord]
    ) -> int:
        body, crc = item.body, item.crc
        if item.kind is RecordKind.STATE:
            body = encode_state(item.state)
            crc = crc32(body)
        header = Header(item.kind, crc, item.stream, item.first, item.rows, len(body), *item.times)
        size = record_size(len(body))
        pieces += frame(header, body, segment.index.salt, at)
        written.append(WrittenRecord(at, size, header, body))
        return at + size

    def _tidy(self) -> None:
        if self._untidy and self._file is not None and self.segment is not None:
            self._file.truncate(self.segment.end)
            self._file.sync()
        self._untidy = False

    def _room(self) -> tuple[Segment, File]:
        """The segment to write to, begun where need be."""
        if self.full():
            segment, file = self._begin()
            self._seal()
            self.segment, self._file, self._records = segment, file, 0
        assert self.segment is not None and self._file is not None
        return self.segment, self._file

    def _begin(self) -> tuple[Segment, File]:
        ordinal, salt, created = self._next_ordinal, self._next_salt, int(self._clock() * 1e6)
        name = segment_name(ordinal, salt)
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(name)  # of an attempt that failed: nothing was ever kept in it
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

    def _seal(self) -> None:
        """Close the segment before. Its sidecar saves a scan; without one it is scanned."""
        if self._file is not None:
            self._file.close()
        if self.segment is not None:
            with contextlib.suppress(OSError):
                sidecar = list(self.segment.index.encode(self.segment.end))
                write_new(self._disk, sidecar_name(self.segment.name), sidecar)


def _state_item(state: LogState) -> Item:
    return Item(RecordKind.STATE, state, state.stream)
