"""The index of one part (a segment or a compacted part): the position of each log's batches.

Logs are identified by their numbers (`content.log_number`). An `Index` has the state and the entries of each log, in
the order of their sequence numbers. It is written as a sidecar file when a segment is closed, and derived from the part
again if the sidecar is missing or damaged. A sidecar lists every record. With a sparse index, reading one log would
mean reading all records, because its batches are scattered among those of a thousand other logs.

An index that is opened again reads only its summary. It reads the entries of a log on demand, because there are
600 kB of entries for each GB of segments, and a folder may have years of recordings.

    sidecar   magic 8, salt u64, covered u64, created i64, logs u32, damage u32,
              size of summary u32, its crc u32; summary: a row and a state for each log, then the places of damage;
              then the entries of one log after another
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from fastflight.log.content import LogState, decode_state, encode_state
from fastflight.log.disk import Disk

_HEADER = struct.Struct("<8sQQqIIII")
_SUMMARY = struct.Struct("<QQQQQqqQII")
_DAMAGE = struct.Struct("<QQ")
_MAGIC = b"FFIDX 1\n"
# The 64-bit numbers of one entry: offset, size, first, rows, first time, last time.
_STRIDE = 6
_ENTRY_BYTES = _STRIDE * 8
# Numbers are stored in 64 bits with a sign.
MAX_SEQ = 2**62

# The earliest and the latest possible time, for ranges without an end.
BEGINNING = -(2**63)
END_OF_TIME = 2**63 - 1
# Numbers without rows have no times. These two values in place of the times tell why: the rows were lost, or recording
# was paused.
LOST = (END_OF_TIME, BEGINNING)
PAUSE = (END_OF_TIME, BEGINNING + 1)
# Stores written before 2026-11-22 do not distinguish the two. There, a pause between two servers ends at a multiple of
# this (docs/decisions/0020).
OLD_PAUSE_MULTIPLE = 1_000_000


class IndexEntry(NamedTuple):
    """One record: its place, and the numbers and times of its rows. `size` 0 means rows that were never written."""

    offset: int
    size: int
    first: int
    rows: int
    first_time: int
    last_time: int

    @property
    def last(self) -> int:
        return self.first + self.rows - 1

    @property
    def is_pause(self) -> bool:
        """Whether the entry has no rows because recording was paused, so that none were lost."""
        return not self.size and (self.last_time == PAUSE[1] or not (self.last + 1) % OLD_PAUSE_MULTIPLE)


class Entries:
    """The records of one log in one part, in ascending order. One thread may add while others read."""

    def __init__(self, numbers: array[int] | None = None) -> None:
        self._numbers = array("q") if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers) // _STRIDE

    def __getitem__(self, index: int) -> IndexEntry:
        at = index * _STRIDE
        return IndexEntry(*self._numbers[at : at + _STRIDE])

    def __iter__(self) -> Iterator[IndexEntry]:
        return (self[i] for i in range(len(self)))

    def add(self, entry: IndexEntry) -> None:
        self._numbers.extend(entry)

    def index_from(self, seq: int) -> int:
        """Return the index of the first entry whose last number is `seq` or above."""
        return bisect_right(range(len(self)), seq - 1, key=lambda i: self[i].last)

    def index_until(self, seq: int) -> int:
        """Return the index after the last entry whose first number is below `seq`."""
        return bisect_left(range(len(self)), seq, key=lambda i: self[i].first)

    def tobytes(self) -> bytes:
        return self._numbers.tobytes()

    @classmethod
    def frombytes(cls, data: bytes) -> Entries:
        numbers = array("q")
        numbers.frombytes(data)
        return cls(numbers)


@dataclass(slots=True)
class LogIndex:
    """One log within one part of a store: its numbers from `begin` up to, but not including, `next`.

    `rows` and `bytes` count the rows that are stored, and not the numbers without rows.
    """

    state: LogState
    begin: int = 0
    next: int = 0
    rows: int = 0
    bytes: int = 0
    first_time: int = END_OF_TIME
    last_time: int = BEGINNING
    # How many numbers are in pauses; None if unknown, because the entries are not loaded.
    paused: int | None = 0
    entries: Entries | None = field(default_factory=Entries)
    # Offset, size and crc32 of the entries in the sidecar.
    stored: tuple[int, int, int] = (0, 0, 0)

    def add(self, entry: IndexEntry) -> None:
        assert self.entries is not None  # only a part that is written or scanned gains entries
        self.entries.add(entry)
        self.next = entry.first + entry.rows
        if entry.size:
            self.rows += entry.rows
            self.bytes += entry.size
            self.first_time = min(self.first_time, entry.first_time)
            self.last_time = max(self.last_time, entry.last_time)
        elif entry.is_pause and self.paused is not None:
            self.paused += entry.rows


class Index:
    """The logs of one part by number, and the places in it that cannot be read."""

    def __init__(self, salt: int = 0, created: int = 0) -> None:
        self.salt = salt
        # When the part was created, in us UTC by the host's clock; 0 if unknown.
        self.created = created
        self.logs: dict[int, LogIndex] = {}
        self.damage: dict[tuple[int, int], None] = {}

    def set_state(self, state: LogState) -> LogIndex:
        """Add or update the log of `state`, and return it. An update never lowers the first or the next number."""
        log_index = self.logs.get(state.number)
        if log_index is None:
            log_index = self.logs[state.number] = LogIndex(state, state.next, state.next)
        else:
            log_index.state = state._replace(first=max(log_index.state.first, state.first))
            log_index.next = max(log_index.next, state.next)
        return log_index

    def add_unnamed(self, number: int, first: int) -> LogIndex:
        """Add a log whose state was damaged, and return it. Another part or `Store.open` supplies its name."""
        return self.logs.setdefault(number, LogIndex(LogState(0, 0, "", b""), first, first))

    def add_damage(self, offset: int, size: int) -> None:
        """Record a place that cannot be read."""
        self.damage[offset, size] = None

    @property
    def last_time(self) -> int:
        return max((log_index.last_time for log_index in self.logs.values()), default=BEGINNING)

    @property
    def rows(self) -> int:
        return sum(log_index.rows for log_index in self.logs.values())

    def encode(self, covered: int) -> Iterator[bytes]:
        """Yield the sidecar of a part of `covered` bytes. All entries must be loaded. Sets `LogIndex.stored`."""
        summary: list[bytes] = []
        runs: list[bytes] = []
        at = 0
        for number, log_index in self.logs.items():
            assert log_index.entries is not None
            run = log_index.entries.tobytes()
            state = encode_state(log_index.state)
            log_index.stored = (at, len(run), crc32(run))
            row = (number, log_index.begin, log_index.next, log_index.rows, log_index.bytes, log_index.first_time)
            summary.append(_SUMMARY.pack(*row, log_index.last_time, at, len(run) // _ENTRY_BYTES, crc32(run)))
            summary.append(len(state).to_bytes(4, "little") + state)
            runs.append(run)
            at += len(run)
        summary += [_DAMAGE.pack(*place) for place in self.damage]
        text = b"".join(summary)
        for log_index in self.logs.values():
            offset, size, crc = log_index.stored
            log_index.stored = (_HEADER.size + len(text) + offset, size, crc)
        header = (_MAGIC, self.salt, covered, self.created, len(self.logs), len(self.damage), len(text))
        yield _HEADER.pack(*header, crc32(text, crc32(_HEADER.pack(*header, 0))))
        yield text
        yield from runs

    def release(self) -> None:
        """Free the entries. The sidecar must have been written: they are read from there on demand."""
        for log_index in self.logs.values():
            log_index.entries = None

    @classmethod
    def decode(cls, read: Callable[[int, int], bytes], covered: int | None = None) -> Index | None:
        """Return the index in a sidecar, which `read(offset, size)` reads.

        Returns None if it is damaged, or if `covered` is given and the sidecar is of a part of another size.
        """
        start = read(0, _HEADER.size)
        if len(start) < _HEADER.size:
            return None
        magic, salt, its_covered, created, logs, damage, size, crc = _HEADER.unpack(start)
        if magic != _MAGIC or covered not in (None, its_covered):
            return None
        text = read(_HEADER.size, size)
        if len(text) < size or crc32(text, crc32(start[:-4] + bytes(4))) != crc:
            return None
        index, at, runs = cls(salt, created), 0, _HEADER.size + size
        for _ in range(logs):
            number, begin, next_, rows, size, low, high, run, count, run_crc = _SUMMARY.unpack_from(text, at)
            at += _SUMMARY.size
            length = int.from_bytes(text[at : at + 4], "little")
            state = decode_state(text[at + 4 : at + 4 + length])
            at += 4 + length
            stored = (runs + run, count * _ENTRY_BYTES, run_crc)
            index.logs[number] = LogIndex(state, begin, next_, rows, size, low, high, None, None, stored)
        for place in _DAMAGE.iter_unpack(text[at : at + damage * _DAMAGE.size]):
            index.add_damage(*place)
        return index


def stored_entries(log_index: LogIndex, disk: Disk, name: str, origin: int = 0) -> Entries | None:
    """Read the entries of a log from the sidecar, which begins at `origin` in file `name`.

    Returns None if they are damaged or the file cannot be read.
    """
    offset, size, crc = log_index.stored
    try:
        file = disk.open(name)
        try:
            data = file.read(origin + offset, size)
        finally:
            file.close()
    except OSError:
        return None
    if len(data) < size or crc32(data) != crc:
        return None
    return Entries.frombytes(data)
