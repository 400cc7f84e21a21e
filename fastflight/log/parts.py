"""Finds the parts in a store's folder by their file names, and combines the indexes of the parts for one log.

    000000000007-89abcdef01234567.seg    a segment, with its ordinal and salt; the .idx file is its sidecar
    000000000003-000000000006.parts      the index of a compacted part, which replaces these segments
    000000000003-000000000006.1of2.parquet   rows of the compacted part, one file per schema

A file that ends in `.new` is unfinished. If a compacted part has its index file, the segments that it replaces are
leftovers. If it has none, its Parquet files are leftovers as long as one of them is missing or one of the segments
exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fastflight.log.compacted import PARQUET_NAME, Compacted, find_compacted
from fastflight.log.disk import TEMPORARY, Disk
from fastflight.log.index import BEGINNING, END_OF_TIME, Entries
from fastflight.log.reading import Snapshot, StorePart
from fastflight.log.record import SEGMENT_HEADER
from fastflight.log.segment import (
    SEGMENT_NAME,
    Segment,
    load_segment,
    parse_segment_name,
    scan_appended,
    scan_segment,
    sidecar_name,
)
from fastflight.log.values import Damage, Extent, LogStatistics, Range


def load_parts(disk: Disk, *, writing: bool, known: Sequence[StorePart] = ()) -> list[StorePart]:
    """Return the parts of a folder, in order. With `writing`, remove leftovers.

    A segment in `known` that has only grown is not scanned from its beginning: the new records are added to its index.
    """
    names = disk.names()
    compacted = find_compacted(disk, names)
    covered = [(part.ordinal, part.last_ordinal) for part in compacted]
    segments = [name for name in names if SEGMENT_NAME.fullmatch(name)]
    live = [
        name for name in segments if not any(first <= parse_segment_name(name)[0] <= last for first, last in covered)
    ]
    while writing and live and _is_empty(disk, live[-1]):
        # The writer stopped before it wrote a row. Remove the file, because its ordinal is used again.
        disk.remove(live.pop())
        names = disk.names()
    if writing:
        _remove_leftovers(disk, names, compacted, live)
    parts: list[StorePart] = list(compacted)
    known_segments = {part.name: part for part in known if isinstance(part, Segment)}
    for name in live:
        part = known_segments.get(name)
        if part is not None and scan_appended(part):
            parts.append(part)
        else:
            # The last segment may have grown, so a sidecar of it cannot be trusted.
            parts.append(scan_segment(disk, name, closed=False) if name == live[-1] else load_segment(disk, name))
    return sorted(parts, key=lambda part: part.ordinal)


def known_damage(parts: Sequence[StorePart]) -> list[Damage]:
    """Return the places that are known to be damaged."""
    return [Damage(part.name, offset, size) for part in parts for offset, size in part.index.damage]


def log_statistics(snapshot: Snapshot, number: int) -> LogStatistics:
    """Return the statistics of a log: the rows that reading would return if nothing is damaged."""
    rows = size = lost = 0
    following = snapshot.first
    first_time, last_time = END_OF_TIME, BEGINNING
    for part in snapshot.parts:
        log_index = part.index.logs.get(number)
        if log_index is None or log_index.next <= snapshot.first:
            continue
        first_time, last_time = min(first_time, log_index.first_time), max(last_time, log_index.last_time)
        lost += log_index.next - following
        following = log_index.next
        if log_index.begin >= snapshot.first:
            rows, size = rows + log_index.rows, size + log_index.bytes
            lost -= log_index.rows + _paused(part, number)
            continue
        entries = part.entries(number)
        for entry in entries or Entries():
            if entry.last >= snapshot.first:
                count = entry.last + 1 - max(entry.first, snapshot.first)
                rows, size = rows + (count if entry.size else 0), size + entry.size
                lost -= count if entry.size or entry.is_pause else 0
    timed = first_time <= last_time
    return LogStatistics(
        rows,
        size,
        snapshot.first,
        snapshot.next,
        first_time if timed else None,
        last_time if timed else None,
        lost,
        tuple(known_damage([part for part in snapshot.parts if number in part.index.logs])),
    )


def _paused(part: StorePart, number: int) -> int:
    """Return how many numbers of a log are in pauses of a part. Loads the entries once, if the log has holes there."""
    log_index = part.index.logs[number]
    if log_index.next - log_index.begin == log_index.rows:
        return 0
    if log_index.paused is None:
        log_index.paused = sum(entry.rows for entry in part.entries(number) or Entries() if entry.is_pause)
    return log_index.paused


def extents(snapshot: Snapshot, number: int, wanted: Range) -> list[Extent]:
    """Return an extent for each part that has rows of the range."""
    low = max(snapshot.first, wanted.from_seq or 0)
    high = snapshot.next if wanted.until_seq is None else min(snapshot.next, wanted.until_seq + 1)
    start = BEGINNING if wanted.from_time is None else wanted.from_time
    stop = END_OF_TIME if wanted.until_time is None else wanted.until_time
    found: list[Extent] = []
    for part in snapshot.parts:
        log_index = part.index.logs.get(number)
        if log_index is None or log_index.next <= low or log_index.begin >= high:
            continue
        if log_index.first_time >= stop or log_index.last_time < start:
            continue
        first, last = max(log_index.begin, low), min(log_index.next, high) - 1
        rows, size, first_time = log_index.rows, log_index.bytes, log_index.first_time
        if first > log_index.begin or last < log_index.next - 1:
            entries = part.entries(number) or Entries()
            batches = [
                entries[i] for i in range(entries.index_from(first), entries.index_until(last + 1)) if entries[i].size
            ]
            rows = sum(min(entry.last, last) + 1 - max(entry.first, first) for entry in batches)
            size = sum(entry.size for entry in batches)
            first_time = min((entry.first_time for entry in batches), default=END_OF_TIME)
        if rows:
            found.append(Extent(first, last, rows, size, first_time))
    return found


def _is_empty(disk: Disk, name: str) -> bool:
    file = disk.open(name)
    try:
        return file.size() <= SEGMENT_HEADER.size
    finally:
        file.close()


def _remove_leftovers(disk: Disk, names: Sequence[str], compacted: Sequence[Compacted], live: Sequence[str]) -> None:
    in_use = {name for part in compacted for name in part.files} | {
        name for segment in live for name in (segment, sidecar_name(segment))
    }
    for name in names:
        ours = SEGMENT_NAME.fullmatch(name) or PARQUET_NAME.fullmatch(name) or name.endswith((".idx", TEMPORARY))
        if ours and name not in in_use:
            with contextlib.suppress(OSError):
                disk.remove(name)
