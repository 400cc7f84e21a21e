"""Where the batches of each log lie within one part (a segment, or what it was compacted to).

An `Index` holds for each stream its state and its entries, in the order of their sequence numbers. It is written as a
sidecar when a segment is closed, and derived from the part again when the sidecar is missing or damaged. A sidecar
names every record: the batches of one log lie scattered among those of a thousand others, so that a sparse index would
mean reading all of them. Opened again, an index reads its summary; the entries of a stream only when it is asked for:
there are 600 kB of them for each GB of segments, and years of recordings may lie in a folder.

    sidecar   magic 8, salt u64, covered u64, created i64, streams u32, damage u32,
              size of summary u32, its crc u32; summary: a row and a state for each stream, then the places of
              damage; then the entries, a run per stream
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
# offset, size, first, rows, first time, last time
_STRIDE = 6
_ENTRY_BYTES = _STRIDE * 8
# Numbers are kept in 64 bits with a sign.
MAX_SEQ = 2**62

# The earliest and the latest time there is, for ranges without an end.
BEGINNING = -(2**63)
END_OF_TIME = 2**63 - 1
# Numbers without rows have no times. These two say that the rows were lost, or that nobody was to keep any.
LOST = (END_OF_TIME, BEGINNING)
PAUSE = (END_OF_TIME, BEGINNING + 1)
# Stores of before 2026-11-22 do not tell the two apart. A pause between two servers ends at a multiple of this there
# (docs/decisions/0020).
OLD_PAUSE_MULTIPLE = 1_000_000


class IndexEntry(NamedTuple):
    """One record: where it lies, the numbers and the times of its rows. `size` 0: rows that were never written."""

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
        """Numbers without rows of which none was lost: nobody was to keep any."""
        return not self.size and (self.last_time == PAUSE[1] or not (self.last + 1) % OLD_PAUSE_MULTIPLE)


class Entries:
    """The records of one stream in one part, ascending. One thread adds; others read what was there when they asked."""

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

    def after(self, seq: int) -> int:
        """The index of the first entry that reaches `seq` or beyond."""
        return bisect_right(range(len(self)), seq - 1, key=lambda i: self[i].last)

    def before(self, seq: int) -> int:
        """The index after the last entry that starts below `seq`."""
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
    """What one part of a store holds of one log: the numbers from `begin` up to `next`, not included.

    `rows` and `bytes` are of batches only.
    """

    state: LogState
    begin: int = 0
    next: int = 0
    rows: int = 0
    bytes: int = 0
    first_time: int = END_OF_TIME
    last_time: int = BEGINNING
    # Numbers in pauses; None while that is not known: the entries are not loaded.
    paused: int | None = 0
    entries: Entries | None = field(default_factory=Entries)
    # Where the entries lie in the sidecar, while they are not loaded.
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
    """The streams of one part by number, and the places in it that cannot be read."""

    def __init__(self, salt: int = 0, created: int = 0) -> None:
        self.salt = salt
        # When the part was begun, in us UTC of the host's clock; 0 where that is not known.
        self.created = created
        self.streams: dict[int, LogIndex] = {}
        self.damage: dict[tuple[int, int], None] = {}

    def state(self, state: LogState) -> LogIndex:
        """The stream of `state`, which says the newest of it; but what is trimmed stays so."""
        stream = self.streams.get(state.stream)
        if stream is None:
            stream = self.streams[state.stream] = LogIndex(state, state.next, state.next)
        else:
            stream.state = state._replace(first=max(stream.state.first, state.first))
            stream.next = max(stream.next, state.next)
        return stream

    def nameless(self, number: int, first: int) -> LogIndex:
        """A stream whose state was damaged. Another part, or whoever opens it, says its name."""
        return self.streams.setdefault(number, LogIndex(LogState(0, 0, "", b""), first, first))

    def damaged(self, offset: int, size: int) -> None:
        """A place cannot be read: found when the part was opened, or when it was read."""
        self.damage[offset, size] = None

    @property
    def last_time(self) -> int:
        return max((stream.last_time for stream in self.streams.values()), default=BEGINNING)

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams.values())

    def encode(self, covered: int) -> Iterator[bytes]:
        """The sidecar of a part of `covered` bytes. All entries must be loaded; their places are known then."""
        summary: list[bytes] = []
        runs: list[bytes] = []
        at = 0
        for number, stream in self.streams.items():
            assert stream.entries is not None
            run = stream.entries.tobytes()
            state = encode_state(stream.state)
            stream.stored = (at, len(run), crc32(run))
            row = (number, stream.begin, stream.next, stream.rows, stream.bytes, stream.first_time)
            summary.append(_SUMMARY.pack(*row, stream.last_time, at, len(run) // _ENTRY_BYTES, crc32(run)))
            summary.append(len(state).to_bytes(4, "little") + state)
            runs.append(run)
            at += len(run)
        summary += [_DAMAGE.pack(*place) for place in self.damage]
        text = b"".join(summary)
        for stream in self.streams.values():
            offset, size, crc = stream.stored
            stream.stored = (_HEADER.size + len(text) + offset, size, crc)
        header = (_MAGIC, self.salt, covered, self.created, len(self.streams), len(self.damage), len(text))
        yield _HEADER.pack(*header, crc32(text, crc32(_HEADER.pack(*header, 0))))
        yield text
        yield from runs

    def release(self) -> None:
        """Let go of the entries: the sidecar is written, and has them."""
        for stream in self.streams.values():
            stream.entries = None

    @classmethod
    def decode(cls, read: Callable[[int, int], bytes], covered: int | None = None) -> Index | None:
        """The index in a sidecar, read by `read(offset, size)`; None where it is damaged, or not of `covered` bytes."""
        start = read(0, _HEADER.size)
        if len(start) < _HEADER.size:
            return None
        magic, salt, its_covered, created, streams, damage, size, crc = _HEADER.unpack(start)
        if magic != _MAGIC or covered not in (None, its_covered):
            return None
        text = read(_HEADER.size, size)
        if len(text) < size or crc32(text, crc32(start[:-4] + bytes(4))) != crc:
            return None
        index, at, runs = cls(salt, created), 0, _HEADER.size + size
        for _ in range(streams):
            number, begin, next_, rows, size, low, high, run, count, run_crc = _SUMMARY.unpack_from(text, at)
            at += _SUMMARY.size
            length = int.from_bytes(text[at : at + 4], "little")
            state = decode_state(text[at + 4 : at + 4 + length])
            at += 4 + length
            stored = (runs + run, count * _ENTRY_BYTES, run_crc)
            index.streams[number] = LogIndex(state, begin, next_, rows, size, low, high, None, None, stored)
        for place in _DAMAGE.iter_unpack(text[at : at + damage * _DAMAGE.size]):
            index.damaged(*place)
        return index


def stored_entries(stream: LogIndex, disk: Disk, name: str, origin: int = 0) -> Entries | None:
    """The entries of `stream`, from its sidecar at `origin` of a file; None where they are damaged there, or gone."""
    offset, size, crc = stream.stored
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
