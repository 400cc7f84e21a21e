"""`recording`: what was kept of a device's traffic as rows, from its log.

Read is what is acknowledged when reading begins; where rows are missing, the rows say so with the numbers, the reason
and, of damage, the place. The sync path reads in the asking thread; the async one has lots fetched and made into rows
by threads of the loop's pool, a hop for each.

`parts` divides a request by what is stored together, for those that read with several streams.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Protocol

from fastflight.concurrency import off_loop
from fastflight.errors import RequestError
from fastflight.log import Extent, LogStatistics, Missing, NumberedRows, Range
from fastflight.service.requests import Recording
from fastflight.service.source import AsyncReading, Estimate, Lot, Noted, Part, Parts, Reading, Source, Takes
from fastflight.sources.reading import abegin, begin
from fastflight.sources.recorded_rows import Replay, microseconds, place

# What one hop to a thread gives: enough to make it cheap, little enough to hold.
LOT_BYTES = 2 * 1024 * 1024
# What is worth a stream of its own, as it is stored: a segment.
PART_BYTES = 64 * 1024 * 1024
# A thread looks up this often, should nothing come of what it reads: its client may be gone.
LOT_ITEMS = 256


class Readable(Protocol):
    """A log, to read."""

    def read(self, wanted: Range = ...) -> Generator[NumberedRows | Missing, None, None]: ...

    def statistics(self) -> LogStatistics: ...

    def extents(self, wanted: Range = ...) -> list[Extent]: ...


class Shelf(Protocol):
    """Recordings by name: a store, or a reader of one."""

    def names(self) -> list[str]: ...

    def log(self, name: str) -> Readable: ...


class RecordingSource:
    """The source of `recording` requests."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def source(self) -> Source[Recording]:
        """For the catalog."""
        return Source(
            Recording,
            read=self.read,
            aread=self.aread,
            describe=self.describe,
            requests=self.requests,
            parts=self.parts,
        )

    def read(self, request: Recording) -> Reading:
        replay, lots = self._open(request)
        return begin(replay, lots)

    async def aread(self, request: Recording) -> AsyncReading:
        replay, lots = await off_loop(self._open, request)
        return await abegin(replay, _alots(lots))

    def describe(self, request: Recording) -> Estimate:
        """The schema is the request's; the rows are known where a row is a chunk, and the range is one of numbers."""
        schema = Replay(request).schema
        extents = self._shelf.log(request.name).extents(range_of(request))
        if request.format != "bytes" or request.from_time or request.to_time or request.since_seconds is not None:
            return Estimate(schema)
        rows = sum(extent.rows for extent in extents)
        return Estimate(schema, rows if request.limit_rows is None else min(rows, request.limit_rows))

    def requests(self, takes: Takes) -> Iterator[tuple[Recording, Estimate]]:
        """Every recording, whole."""
        for name in filter(takes, self._shelf.names()):
            request = Recording(name=name)
            yield request, self.describe(request)

    def parts(self, request: Recording, known: Estimate) -> Parts[Recording]:
        """Requests that give together, in this order, what `request` gives, each from what is stored together.

        Only rows of `bytes` can be read apart: lines go over what lies between.
        """
        whole = Parts([Part(request)])
        if request.format != "bytes" or request.limit_rows is not None or request.since_seconds is not None:
            return whole
        ends: list[int] = []
        size = 0
        for extent in self._shelf.log(request.name).extents(range_of(request)):
            size += extent.bytes
            if size >= PART_BYTES:
                ends.append(extent.last)
                size = 0
        # What follows the last one goes with it, and so does what comes after what is there now.
        ends = ends if size else ends[:-1]
        if not ends:
            return whole
        firsts = [request.from_seq, *(end + 1 for end in ends)]
        return Parts(
            [
                Part(request.model_copy(update={"from_seq": first, "to_seq": last}))
                for first, last in zip(firsts, [*ends, request.to_seq], strict=True)
            ]
        )

    def _open(self, request: Recording) -> tuple[Replay, Generator[Lot, None, None]]:
        """Raises what is wrong with the request."""
        replay, log, wanted = Replay(request), self._shelf.log(request.name), range_of(request)
        if request.format != "bytes":
            replay.begin(_begins_line(log, wanted))
        return replay, _lots(replay, log, wanted)


def range_of(request: Recording) -> Range:
    """What a request asks of the log. `RequestError` for a range that is none."""
    if request.since_seconds is not None and request.from_time is not None:
        raise RequestError("it begins at one time", where="since_seconds", hint="Leave it or from_time out")
    start = request.from_time
    if request.since_seconds is not None:
        start = datetime.fromtimestamp(time.time() - request.since_seconds, UTC)
    if start is not None and request.to_time is not None and request.to_time < start:
        raise RequestError("it ends before it begins", where="to_time", hint="Give a time after from_time")
    if request.from_seq is not None and request.to_seq is not None and request.to_seq < request.from_seq:
        raise RequestError("it ends before it begins", where="to_seq", hint="Give a number from from_seq on")
    return Range(request.from_seq, request.to_seq, microseconds(start), microseconds(request.to_time))


def _begins_line(log: Readable, wanted: Range) -> bool:
    """Whether what the device sent first in a range is known to begin a line: what came just before it ended one."""
    first = _first(log, wanted)
    if first is None or not first.first or first.batch.column("cut")[0].is_valid:
        return False
    before = _first(log, Range(first.first - 1, first.first - 1))
    if before is None:
        return False
    row = before.batch.slice(0, 1).to_pylist()[0]
    return row["direction"] == "rx" and bool(row["data"].endswith(b"\n"))


def _first(log: Readable, wanted: Range) -> NumberedRows | None:
    """The first rows of a range; None where the first that there is to say of it is that they are missing."""
    with closing(log.read(wanted)) as items:
        item = next(items, None)
    return item if isinstance(item, NumberedRows) else None


def _lots(replay: Replay, log: Readable, wanted: Range) -> Generator[Lot, None, None]:
    yield []
    lot: Lot = []
    size = seen = 0
    with closing(log.read(wanted)) as items:
        for item in items:
            if replay.full:
                break
            made = replay.feed(item)
            lot += made
            seen += 1
            size += sum((each.batch if isinstance(each, Noted) else each).nbytes for each in made)
            if size >= LOT_BYTES or seen >= LOT_ITEMS:
                yield lot
                lot, size, seen = [], 0, 0
    replay.damage = [place(each) for each in log.statistics().damage]
    yield lot + replay.finish()


async def _alots(lots: Generator[Lot, None, None]) -> AsyncGenerator[Lot, None]:
    fetching = False
    try:
        while True:
            fetching = True
            lot = await off_loop(next, lots, None, discard=lambda _: lots.close())
            fetching = False
            if lot is None:
                return
            yield lot
    finally:
        if not fetching:  # a lot that is still being fetched closes them where it is
            lots.close()
