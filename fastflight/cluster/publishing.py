"""Hands the rows that this server records over to the stream of the fleet.

Recorders write to the embedded log of this server, the buffer. What has become durable there is read several times a
second, in the order in which it was appended, and published, in one message if it fits. While NATS cannot be used,
recording goes on in the buffer, and what it holds is handed over later, also by the next process that opens the buffer.
The buffer keeps the newest rows up to its size, handed over or not; rows that it had to delete before are a gap in the
recording, which says how many they are.

A message that was sent twice, because its acknowledgement was lost, does no harm: rows are told by their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import structlog

from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.following import Follower
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.cluster.shipment import Run, encode
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError
from fastflight.gap import Gap, Why
from fastflight.log import LOG_SCHEMA, Extent, Range, Store
from fastflight.log.bodies import joined, runs_of
from fastflight.log.database import BodyPosition

log = structlog.get_logger(__name__)

# How often the buffer is checked for new rows.
CHECK_SECONDS = 0.2
# Before the next attempt after a failure.
RETRY_SECONDS = 1.0
# Rows that are read from the buffer at a time, roughly. Their messages are smaller: they are compressed.
STEP_BYTES = 1024 * 1024
# A message may have 1 MB in NATS as it comes, headers included.
MAX_MESSAGE_BYTES = 1_000_000
_first = attrgetter("first")


class Step(NamedTuple):
    """New rows of the buffer, the runs in them, and the position of the last ones.

    `lost` has for each device with rows that cannot be read the number after these.
    """

    position: BodyPosition
    rows: pa.RecordBatch | None
    runs: Sequence[Run]
    lost: Mapping[str, int]


class Publisher:
    """Publishes what is written to `buffer`, as the server `server`, on the loop of `follower`, while `run` runs."""

    def __init__(
        self, buffer: Store, server: str, stream: RecordingStream, follower: Follower, copy: FleetCopy
    ) -> None:
        self._buffer = buffer
        self._server = server
        self._stream = stream
        self._follower = follower
        self._copy = copy
        # What is handed over of the buffer, and the number after the last row of each device that is. Of `_lost` the
        # same, for rows that cannot be read. The next message of their device says that they are missing.
        self._position: BodyPosition | None = None
        self._handed: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        # How many commits of the buffer are handed over.
        self._commits = -1
        # A body that could not be read once.
        self._unread: BodyPosition | None = None
        self._progress = asyncio.Event()
        # Why the last attempt failed; empty after one that did not.
        self.trouble = ""

    def names(self) -> list[str]:
        """Return the devices that the buffer has rows of."""
        return self._buffer.names()

    def waiting(self, device: str) -> list[Extent]:
        """Return the rows of a device that are in the buffer and not in the stream yet. Any thread may ask."""
        found, done = self._buffer.find(device), self._done(device)
        return [] if found is None or found.durable_end <= done else found.extents(Range(from_seq=done))

    async def drain(self, devices: list[str], seconds: float) -> bool:
        """Wait until the present rows of devices are handed over, for at most `seconds`. Return whether they are."""
        ends = {device: found.durable_end for device in devices if (found := self._buffer.find(device)) is not None}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(end > self._done(device) for device, end in ends.items()):
                    await self._progress.wait()
        return all(end <= self._done(device) for device, end in ends.items())

    def _done(self, device: str) -> int:
        """Return the number after the last row of a device that is handed over, or cannot be."""
        return max(self._handed.get(device, 0), self._lost.get(device, 0))

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            try:
                if self._position is None:
                    await self._begin()
                commits = self._buffer.commits
                more = commits != self._commits and await self._publish()
                if not more:
                    self._commits = commits
            except Exception as error:  # the task's edge: what fails now may work in a second
                trouble = error.what if isinstance(error, FastFlightError) else f"{type(error).__name__}: {error}"
                if trouble != self.trouble:
                    log.warning("recorded rows cannot be handed over; they stay in the buffer", error=str(error))
                self.trouble = trouble
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.trouble:
                log.info("recorded rows are handed over again")
                self.trouble = ""
            if not more:
                await asyncio.sleep(CHECK_SECONDS)

    async def _begin(self) -> None:
        """Find out what an earlier process has handed over: the copy has it, once it is whole."""
        await self._follower.sync()
        self._handed = {device: self._copy.next_of(device, self._server) for device in self._buffer.names()}
        self._position = await off_loop(self._buffer.position_before, self._handed)

    async def _publish(self) -> bool:
        """Publish the next rows. Return whether there were any."""
        assert self._position is not None
        step = await off_loop(self._read, self._position)
        if step is None:
            return False
        if step.rows is not None:
            for message in messages_of(self._server, step.rows, step.runs):
                await self._stream.publish(self._server, message)
        self._lost |= step.lost
        # The runs of a device are in the order of their numbers, and all of them are new.
        self._handed |= {run.device: run.next for run in step.runs}
        self._position = step.position
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
        return True

    def _read(self, position: BodyPosition) -> Step | None:
        """Read the rows after a position, until there are enough for now; None if there are none.

        A body that cannot be read is given up when that has failed twice: it must not hold up all that comes after it.
        """
        bodies = self._buffer.bodies_after(position, STEP_BYTES)
        if not bodies:
            return None
        whole: list[pa.RecordBatch] = []
        lost: dict[str, int] = {}
        for place, rows in bodies:
            if isinstance(rows, pa.RecordBatch):
                whole.append(rows)
                continue
            if rows is not None and self._unread != place:
                self._unread = place
                raise rows
            lost |= self._buffer.ends(place)
            why = "they are damaged" if rows is None else rows.what
            log.error("recorded rows in the buffer cannot be handed over", why=why, devices=sorted(lost))
        new, runs = self._new(joined(whole)) if whole else (None, [])
        return Step(bodies[-1].position, new, runs, lost)

    def _new(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch | None, list[Run]]:
        """Return those of `rows` that are not handed over yet, and their runs, each with what is missing before it."""
        ends: dict[str, int] = {}
        found: list[tuple[int, int, Run, int]] = []
        every = runs_of(rows)
        for number, at, first, length in every:
            run = Run(self._buffer.name_of(number), first, length)
            before = ends.get(run.device, self._handed.get(run.device, 0))
            if run.next > before:
                found.append((number, at, run, before))
                ends[run.device] = run.next
        if not found:
            return None, []
        new = rows
        if len(found) < len(every):
            new = joined([rows.slice(at, run.length) for _, at, run, _ in found])
        gaps = self._buffer.gaps((number, before, run.next - 1) for number, _, run, before in found)
        runs = [
            self._with_gap(part, part.first if part.first > run.first else before, gaps.get(number, []))
            for number, _, run, before in found
            for part in _divided(run, _in_range(gaps.get(number, []), run.first + 1, run.next))
        ]
        return pa.RecordBatch.from_arrays(new.columns[2:], schema=LOG_SCHEMA), runs

    def _with_gap(self, run: Run, before: int, gaps: Sequence[Gap]) -> Run:
        """Return a run with what is missing since the number `before`, of the `gaps` that the buffer has of the log."""
        gaps = _in_range(gaps, before, run.first + 1)
        if before == run.first and not gaps:
            return run
        kept = self._buffer.log(run.device).first
        # A recording that begins here has not lost what this server deleted before.
        paused_until = 0 if before else min(kept, run.first)
        gap: Gap | None = None
        for each in gaps:
            if each.last < run.first:
                if each.why == Why.UNUSED:
                    if each.first <= max(before, paused_until):
                        paused_until = max(paused_until, each.last + 1)
                elif each.rows is None or each.last >= paused_until:
                    gap = each
        if gap is None and max(before, paused_until) < run.first:
            why = Why.CLEARED if before < kept else Why.DAMAGED
            gap = Gap(max(before, paused_until), run.first - 1, why)
        return run._replace(paused_until=paused_until, gap=gap)


def _in_range(gaps: Sequence[Gap], low: int, high: int) -> Sequence[Gap]:
    """Return those of `gaps`, which are in order, that begin from the number `low` on and before `high`."""
    # A line that is lost again and again has as many gaps as rows: not all of them are looked at for each row.
    start = bisect_left(gaps, low, key=_first)
    return gaps[start : bisect_left(gaps, high, start, key=_first)]


def _divided(run: Run, gaps: Sequence[Gap]) -> list[Run]:
    """Divide a run where something without a number is missing: `gaps` are those within it."""
    ends = [run.first, *(gap.first for gap in gaps if gap.rows is None), run.next]
    return [run.part(start - run.first, stop - start) for start, stop in pairwise(ends)]


def messages_of(server: str, rows: pa.RecordBatch, runs: Sequence[Run]) -> Iterator[bytes]:
    """Yield messages with the rows of runs. A row that is too large for NATS is lost."""
    message = encode(server, rows, runs)
    if len(message) <= MAX_MESSAGE_BYTES:
        yield message
    elif rows.num_rows == 1:
        log.warning("a recorded row is lost: it is too large for NATS", device=runs[0].device, seq=runs[0].first)
    else:
        half = rows.num_rows // 2
        for start, end in ((0, half), (half, rows.num_rows)):
            yield from messages_of(server, rows.slice(start, end - start), _parts_of(runs, start, end))


def _parts_of(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """Return what runs have of the rows from `start` to `end`, which count over all of them."""
    parts, at = [], 0
    for run in runs:
        first, last = max(start - at, 0), min(end - at, run.length)
        if first < last:
            parts.append(run.part(first, last - first))
        at += run.length
    return parts
