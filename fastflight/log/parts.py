"""What a folder holds, told from the names in it, and what the parts together say of a log.

    000000000007-89abcdef01234567.seg    a segment, by ordinal and salt; its .idx is its sidecar
    000000000003-000000000006.parts      the index of a compacted part, which replaces those segments
    000000000003-000000000006.1of2.parquet   its rows, a file per schema

Anything that ends in `.new` was never finished. Where a compacted part has its index, the segments that it replaces are
on their way out; until then its files are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fastflight.log.batch_log import Damage, Extent, LogStatistics, Range
from fastflight.log.compacted import PARQUET_NAME, Compacted, find_compacted
from fastflight.log.disk import TEMPORARY, Disk
from fastflight.log.index import BEGINNING, END_OF_TIME, Entries
from fastflight.log.reading import Snapshot, StorePart
from fastflight.log.record import SEGMENT_HEADER
from fastflight.log.segment import SEGMENT_NAME, Segment, grow, load, named, scanned, sidecar_name


def load_parts(disk: Disk, *, writing: bool, known: Sequence[StorePart] = ()) -> list[StorePart]:
    """The parts in order. `writing`: leftovers are removed. Segments that are `known` are not read again."""
    names = disk.names()
    compacted = find_compacted(disk, names)
    covered = [(part.ordinal, part.last_ordinal) for part in compacted]
    segments = [name for name in names if SEGMENT_NAME.fullmatch(name)]
    live = [name for name in segments if not any(first <= named(name)[0] <= last for first, last in covered)]
    while writing and live and _is_empty(disk, live[-1]):
        # Left before any row was kept in it. It must go, not only be passed over: its ordinal is given again.
        disk.remove(live.pop())
        names = disk.names()
    if writing:
        _clean(disk, names, compacted, live)
    parts: list[StorePart] = list(compacted)
    again = {part.name: part for part in known if isinstance(part, Segment)}
    for name in live:
        part = again.get(name)
        if part is not None and grow(part):
            parts.append(part)
        else:
            # The last one has no sidecar that could be trusted: it may have grown.
            parts.append(scanned(disk, name, closed=False) if name == live[-1] else load(disk, name))
    return sorted(parts, key=lambda part: part.ordinal)


def damage_of(parts: Sequence[StorePart]) -> list[Damage]:
    """Places that cannot be read, as far as is known."""
    return [Damage(part.name, offset, size) for part in parts for offset, size in part.index.damage]


def kept(snapshot: Snapshot, number: int) -> LogStatistics:
    """The rows of a log that reading would give, damage aside."""
    rows = size = lost = 0
    following = snapshot.first
    first_time, last_time = END_OF_TIME, BEGINNING
    for part in snapshot.parts:
        stream = part.index.streams.get(number)
        if stream is None or stream.next <= snapshot.first:
            continue
        first_time, last_time = min(first_time, stream.first_time), max(last_time, stream.last_time)
        lost += stream.next - following
        following = stream.next
        if stream.begin >= snapshot.first:
            rows, size = rows + stream.rows, size + stream.bytes
            lost -= stream.rows + _paused(part, number)
            continue
        entries = part.entries(number)
        for entry in entries or Entries():
            if entry.last >= snapshot.first:
                there = entry.last + 1 - max(entry.first, snapshot.first)
                rows, size = rows + (there if entry.size else 0), size + entry.size
                lost -= there if entry.size or entry.is_pause else 0
    timed = first_time <= last_time
    return LogStatistics(
        rows,
        size,
        snapshot.first,
        snapshot.next,
        first_time if timed else None,
        last_time if timed else None,
        lost,
        tuple(damage_of([part for part in snapshot.parts if number in part.index.streams])),
    )


def _paused(part: StorePart, number: int) -> int:
    """How many numbers of a log are in pauses of a part. Its entries are loaded for that once, if it has any holes."""
    stream = part.index.streams[number]
    if stream.next - stream.begin == stream.rows:
        return 0
    if stream.paused is None:
        stream.paused = sum(entry.rows for entry in part.entries(number) or Entries() if entry.is_pause)
    return stream.paused


def extents(snapshot: Snapshot, number: int, wanted: Range) -> list[Extent]:
    """Where the rows of a range are, part by part. Parts without any are left out."""
    low = max(snapshot.first, wanted.from_seq or 0)
    high = snapshot.next if wanted.until_seq is None else min(snapshot.next, wanted.until_seq + 1)
    start = BEGINNING if wanted.from_time is None else wanted.from_time
    stop = END_OF_TIME if wanted.until_time is None else wanted.until_time
    found: list[Extent] = []
    for part in snapshot.parts:
        stream = part.index.streams.get(number)
        if stream is None or stream.next <= low or stream.begin >= high:
            continue
        if stream.first_time >= stop or stream.last_time < start:
            continue
        first, last = max(stream.begin, low), min(stream.next, high) - 1
        rows, size = stream.rows, stream.bytes
        if first > stream.begin or last < stream.next - 1:
            entries = part.entries(number) or Entries()
            held = [entries[i] for i in range(entries.after(first), entries.before(last + 1)) if entries[i].size]
            rows = sum(min(entry.last, last) + 1 - max(entry.first, first) for entry in held)
            size = sum(entry.size for entry in held)
        if rows:
            found.append(Extent(first, last, rows, size))
    return found


def _is_empty(disk: Disk, name: str) -> bool:
    file = disk.open(name)
    try:
        return file.size() <= SEGMENT_HEADER.size
    finally:
        file.close()


def _clean(disk: Disk, names: Sequence[str], compacted: Sequence[Compacted], live: Sequence[str]) -> None:
    wanted = {name for part in compacted for name in part.files} | {
        name for segment in live for name in (segment, sidecar_name(segment))
    }
    for name in names:
        ours = SEGMENT_NAME.fullmatch(name) or PARQUET_NAME.fullmatch(name) or name.endswith((".idx", TEMPORARY))
        if ours and name not in wanted:
            with contextlib.suppress(OSError):
                disk.remove(name)
