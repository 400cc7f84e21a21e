"""The recordings of a fleet as a server keeps them: a store with a log for each device and server that recorded it.

The numbers of the rows that one server has recorded of a device ascend, and no two servers use the same ones. So rows
that come twice are told by their numbers, and rows that come late, of a server that was away, have a place of their
own. A `Recording` is all rows of a device, in the order of their numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from fastflight.cluster.shipment import Run, Shipment, by_device
from fastflight.errors import FastFlightError
from fastflight.gap import Gap, Why
from fastflight.log import (
    EVERYTHING,
    Extent,
    Log,
    LogStatistics,
    NewRows,
    NumberedRows,
    Range,
    Store,
    StoredRows,
    Ticket,
)
from fastflight.log.bodies import joined

# Between the name of the device and that of the server. Neither has it.
SEPARATOR = "@"
# If several logs say why numbers are missing, the first of these reasons counts.
REASONS = [
    Why.DAMAGED,
    *(why for why in Why if why not in (Why.DAMAGED, Why.CLEARED, Why.UNUSED)),
    Why.CLEARED,
    Why.UNUSED,
]


class FleetCopy:
    """The recordings in `store`. One thread at a time adds rows; any thread may read."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._logs: dict[str, dict[str, Log]] = {}
        for name in store.names():
            device, _, server = name.rpartition(SEPARATOR)
            self._logs.setdefault(device, {})[server] = store.log(name)

    def names(self) -> list[str]:
        """Return the names of all recordings, sorted."""
        return sorted(self._logs)

    def find(self, device: str) -> Recording | None:
        """Return the recording of a device; None if there is none."""
        logs = self._logs.get(device)
        return None if logs is None else Recording(list(logs.values()))

    def next_of(self, device: str, server: str) -> int:
        """Return the number after the last row that a server has recorded of a device."""
        log = self._logs.get(device, {}).get(server)
        return 0 if log is None else log.next_seq

    def add(self, shipments: Iterable[Shipment]) -> None:
        """Append the rows that servers have recorded and that this copy lacks. Return when they are durable.

        If this raises, call it again with the same rows: none of them was skipped.
        """
        of_server: dict[str, list[Shipment]] = {}
        for shipment in shipments:
            of_server.setdefault(shipment.server, []).append(shipment)
        results: list[Ticket] = []
        try:
            for server, its in of_server.items():
                results += self._append(server, *by_device(its))
        finally:
            # All have ended before the next call: rows on their way to the disk look as if they were there.
            failed = [error for result in results if (error := _error_of(result)) is not None]
        if failed:
            raise failed[0]

    def _append(self, server: str, rows: pa.RecordBatch, runs: Sequence[Run]) -> list[Ticket]:
        """Append the rows of runs that are new. Return a ticket for each run that has some."""
        parts: list[NewRows] = []
        places: list[int] = []
        ends: dict[Log, int] = {}
        at = 0
        for run in runs:
            log = self._log(run.device, server)
            expected = ends.get(log, log.next_seq)
            first = max(run.first, expected)
            if first < run.next:
                gap = run.gap if first == run.first else None
                parts.append(NewRows(log, run.next - first, expected, first, run.paused_until, gap))
                places.append(at + first - run.first)
                ends[log] = run.next
            at += run.length
        if not parts:
            return []
        self.store.wait_for_room()
        if sum(part.length for part in parts) < at:
            rows = joined([rows.slice(place, part.length) for place, part in zip(places, parts, strict=True)])
        return self.store.append(rows, parts)

    def _log(self, device: str, server: str) -> Log:
        logs = self._logs.get(device, {})
        log = logs.get(server)
        if log is None:
            log = self.store.open(f"{device}{SEPARATOR}{server}")
            self._logs[device] = {**logs, server: log}
        return log


def _error_of(ticket: Ticket) -> FastFlightError | None:
    """Wait until an append has ended. Return its error; None if it has succeeded."""
    try:
        ticket.result()
    except FastFlightError as error:
        return error
    return None


class Recording:
    """All rows of a device, from the logs of the servers that recorded it. Any thread may use it."""

    def __init__(self, logs: list[Log]) -> None:
        self._logs = logs

    def read(self, wanted: Range = EVERYTHING) -> Generator[NumberedRows | Gap, None, None]:
        """As `Log.read`."""
        with ExitStack() as stack:
            yield from merged([stack.enter_context(closing(log.read(wanted))) for log in self._logs])

    def statistics(self) -> LogStatistics:
        """As `Log.statistics`."""
        each = [log.statistics() for log in self._logs]
        filled = [one for one in each if one.rows] or each
        return LogStatistics(
            sum(one.rows for one in each),
            sum(one.bytes for one in each),
            min(one.first_seq for one in filled),
            max(one.next_seq for one in each),
            min((one.first_time for one in each if one.first_time is not None), default=None),
            max((one.last_time for one in each if one.last_time is not None), default=None),
            sum(one.lost for one in each),
            self.damage(),
            sum(one.gaps for one in each),
            max((one.newest_gap for one in each if one.newest_gap), key=lambda gap: gap.first, default=None),
        )

    def damage(self) -> tuple[str, ...]:
        """As `Log.damage`."""
        return tuple(damage for log in self._logs for damage in log.damage())

    def extents(self, wanted: Range = EVERYTHING) -> list[Extent]:
        """As `Log.extents`, in the order of their ends."""
        return sorted((extent for log in self._logs for extent in log.extents(wanted)), key=lambda extent: extent.last)

    def stored(self) -> StoredRows:
        """As `Log.stored`. If several servers have recorded the device, no files: all rows must be read."""
        return self._logs[0].stored() if len(self._logs) == 1 else StoredRows()


def merged(
    readings: Iterable[Iterator[NumberedRows | Gap]],
) -> Generator[NumberedRows | Gap, None, None]:
    """Yield the rows of several readings in the order of their numbers, and what is missing from all of them."""
    cursor: int | None = None
    before: datetime | None = None
    known: list[Gap] = []
    for item in heapq.merge(*readings, key=lambda item: item.first):
        if isinstance(item, Gap):
            known.append(item)
            continue
        yield from _missing(known, cursor, item.first)
        # A server that has recorded the device again knows only when it did so last.
        for gap in known:
            if before is not None and gap.rows is None and gap.first == item.first:
                yield replace(gap, from_time=max(before, gap.from_time or before))
        cursor, before = item.last + 1, item.batch.column("time")[-1].as_py()
        known = [each for each in known if each.last >= cursor]
        yield item
    yield from _missing(known, cursor, max((each.last + 1 for each in known), default=0))


def _missing(known: list[Gap], cursor: int | None, end: int) -> Iterator[Gap]:
    """Yield what is known to be missing from `cursor` on, or from the beginning, and below `end`."""
    parts = [(max(each.first, cursor or 0), min(each.last + 1, end), each) for each in known]
    parts = [each for each in parts if each[0] < each[1]]
    ends = sorted({place for begin, stop, _ in parts for place in (begin, stop)})
    found: list[Gap] = []
    for begin, stop in zip(ends, ends[1:], strict=False):
        reasons = [each for first, last, each in parts if first <= begin and stop <= last]
        if not reasons:
            continue
        why = min(reasons, key=lambda each: REASONS.index(Why(each.why)))
        if found and found[-1].last + 1 == begin and (found[-1].why, found[-1].detail) == (why.why, why.detail):
            begin = found.pop().first
        found.append(replace(why, first=begin, last=stop - 1))
    yield from found
