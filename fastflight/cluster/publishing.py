"""Hands the rows that this server records over to the stream of the fleet.

Recorders write to the embedded log of this server, the buffer. The rows of all devices that have become durable there
are published several times a second, in one message if they fit. They are read from the disk only if earlier ones could
not be handed over: while NATS cannot be used, recording goes on in the buffer, and what it holds is handed over later,
also by the next process that opens the buffer. The buffer keeps the newest rows up to its size, handed over or not;
rows that it had to delete before are a gap in the recording, which says how many they are.

A message that was sent twice, because its acknowledgement was lost, does no harm: rows are told by their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
import structlog

from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.following import Follower
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.cluster.shipment import Run, Shipment, encode
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError
from fastflight.gap import Gap, Why, moment
from fastflight.log import Extent, Log, Range, Store
from fastflight.log.bodies import BodyCodec
from fastflight.log.writer import Append, Item

log = structlog.get_logger(__name__)

# How often the buffer is checked for new rows.
CHECK_SECONDS = 0.2
# Before the next attempt after a failure.
RETRY_SECONDS = 1.0
# Rows that are read from the buffer at a time, roughly. Their messages are smaller: they are compressed.
STEP_BYTES = 1024 * 1024
# Durable rows that are kept in memory to be handed over. If there are more, they are read from the buffer later.
FEED_BYTES = 8 * 1024 * 1024
# A message may have 1 MB in NATS as it comes, headers included.
MAX_MESSAGE_BYTES = 1_000_000


class Shipments:
    """Shipments of a server, one for each schema."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._by_schema: dict[bytes, list[Run]] = {}
        self._schemas: dict[bytes, pa.Schema] = {}

    def add(self, codec: BodyCodec, run: Run) -> None:
        """Add rows of a log with this codec."""
        self._schemas.setdefault(codec.message, codec.schema)
        self._by_schema.setdefault(codec.message, []).append(run)

    def __iter__(self) -> Iterator[Shipment]:
        return (Shipment(self._server, self._schemas[key], runs) for key, runs in self._by_schema.items())


class Step(NamedTuple):
    """New rows of the buffer, up to which number each device's are in it, and devices whose rows cannot be read."""

    shipments: Shipments
    ends: dict[str, int]
    failed: dict[str, str]


class Feed:
    """The appends that have become durable since they were last taken. Any thread may use it.

    If they are too large, they are dropped: the numbers of the next ones tell that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._appends: list[Append] = []
        self._bytes = 0

    def put(self, items: Sequence[Item]) -> None:
        """Add a group that has been committed."""
        with self._lock:
            self._bytes += sum(item.bytes for item in items)
            if self._bytes > FEED_BYTES:
                self._appends, self._bytes = [], 0
            else:
                self._appends += [item for item in items if isinstance(item, Append)]

    def take(self) -> list[Append]:
        """Return what there is, and forget it."""
        with self._lock:
            appends, self._appends, self._bytes = self._appends, [], 0
            return appends


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
        self._feed = Feed()
        buffer.on_commit = self._feed.put
        # The number after the last row of each device that is handed over. Before `_begin`, none is known.
        self._handed: dict[str, int] = {}
        self._progress = asyncio.Event()
        self._trouble = ""
        self._failed: dict[str, str] = {}

    def names(self) -> list[str]:
        """Return the devices that the buffer has rows of."""
        return self._buffer.names()

    def waiting(self, device: str) -> list[Extent]:
        """Return the rows of a device that are in the buffer and not in the stream yet. Any thread may ask."""
        found = self._buffer.find(device)
        return [] if found is None else found.extents(Range(from_seq=self._handed.get(device, 0)))

    async def drain(self, devices: list[str], seconds: float) -> bool:
        """Wait until the present rows of devices are handed over, for at most `seconds`. Return whether they are."""
        ends = {device: found.durable_end for device in devices if (found := self._buffer.find(device)) is not None}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(end > self._handed.get(device, 0) for device, end in ends.items()):
                    await self._progress.wait()
        return all(end <= self._handed.get(device, 0) for device, end in ends.items())

    async def run(self) -> None:
        """Publish until cancelled."""
        begun = False
        while True:
            try:
                if not begun:
                    await self._begin()
                    begun = True
                more = await self._publish()
            except Exception as error:  # the task's edge: what fails now may work in a second
                trouble = error.what if isinstance(error, FastFlightError) else f"{type(error).__name__}: {error}"
                if trouble != self._trouble:
                    log.warning("recorded rows cannot be handed over; they stay in the buffer", error=str(error))
                self._trouble = trouble
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._trouble:
                log.info("recorded rows are handed over again")
                self._trouble = ""
            if not more:
                await asyncio.sleep(CHECK_SECONDS)

    async def _begin(self) -> None:
        """Find out what an earlier process has handed over: the copy has it, once it is whole."""
        await self._follower.sync()
        self._handed = {device: self._copy.next_of(device, self._server) for device in self._buffer.names()}

    async def _publish(self) -> bool:
        """Publish the next rows. Return whether there are more."""
        ends = self._buffer.beyond(self._handed)
        # Taken after that: rows that are in neither are still to be read from the buffer.
        await self._hand_over(self._following(self._feed.take()))
        devices = [device for device, end in ends.items() if end > self._handed.get(device, 0)]
        if not devices:
            return False
        step = await off_loop(self._read, devices)
        await self._hand_over(step.shipments)
        self._handed.update((device, max(end, self._handed.get(device, 0))) for device, end in step.ends.items())
        self._note_progress()
        for device, trouble in step.failed.items():
            if self._failed.get(device) != trouble:
                log.warning("recorded rows of a device cannot be handed over", device=device, error=trouble)
        self._failed = step.failed
        return len(step.ends) + len(step.failed) < len(devices)

    async def _hand_over(self, shipments: Iterable[Shipment]) -> None:
        for shipment in shipments:
            for message, runs in messages_of(shipment):
                await self._stream.publish(self._server, message)
                self._handed.update((run.device, run.next) for run in runs)
                self._note_progress()

    def _following(self, appends: Iterable[Append]) -> Shipments:
        """Return the rows that follow those handed over. The others are of devices that are behind."""
        found, ends = Shipments(self._server), dict[str, int]()
        for each in appends:
            name, rows = each.log.name, each.rows
            position, end = ends.get(name, self._handed.get(name, 0)), rows.first + rows.rows
            if not (each.holes[0].first if each.holes else rows.first) <= position < end:
                continue
            paused_until = max((hole.last + 1 for hole in each.holes if hole.why == Why.UNUSED), default=0)
            gaps = [Gap(*hole[:3], "", *map(moment, hole[3:])) for hole in each.holes if hole.why != Why.UNUSED]
            run = Run(name, rows.first, rows.rows, rows.content, paused_until, gaps[0] if gaps else None)
            if position > rows.first:
                run = run.part(position - rows.first, end - position)
            found.add(each.log.codec, run)
            ends[name] = end
        return found

    def _note_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _read(self, devices: list[str]) -> Step:
        """Read new rows of devices from the buffer, until there are enough for now."""
        step, size = Step(Shipments(self._server), {}, {}), 0
        for device in devices:
            if size >= STEP_BYTES:
                break
            found = self._buffer.log(device)
            end = found.durable_end
            try:
                for run in _new_rows(found, self._handed.get(device, 0)):
                    step.shipments.add(found.codec, run)
                    size += run.rows.nbytes if isinstance(run.rows, pa.RecordBatch) else 0
                    if size >= STEP_BYTES and run.next < end:
                        break
                else:
                    step.ends[device] = end
            except Exception as error:  # the edge of one device: the others are handed over
                step.failed[device] = str(error)
        return step


def _new_rows(source: Log, position: int) -> Iterator[Run]:
    """Yield the rows of a log in the buffer from a number on."""
    # A recording that begins here has not lost what this server deleted before.
    paused_until = source.statistics().first_seq if not position else 0
    gap: Gap | None = None
    with closing(source.read(Range(from_seq=position))) as items:
        for item in items:
            if not isinstance(item, Gap):
                yield Run(source.name, item.first, item.batch.num_rows, item.batch, paused_until, gap)
                position, gap = item.last + 1, None
            elif item.why == Why.UNUSED and item.first <= max(position, paused_until):
                paused_until = item.last + 1
            elif item.why != Why.UNUSED and (item.rows is None or item.last >= paused_until):
                gap = item


def messages_of(shipment: Shipment) -> Iterator[tuple[bytes, Sequence[Run]]]:
    """Yield messages with the rows of a shipment, and the runs in each. A row that is too large for NATS is lost."""
    runs = shipment.runs
    message = encode(shipment)
    if len(message) <= MAX_MESSAGE_BYTES:
        yield message, runs
        return
    first, *others = runs
    if others:
        half = len(runs) // 2
        parts = runs[:half], runs[half:]
    elif (half := first.length // 2) > 0:
        parts = [first.part(0, half)], [first.part(half, first.length - half)]
    else:
        log.warning("a recorded row is lost: it is too large for NATS", device=first.device, seq=first.first)
        return
    for part in parts:
        yield from messages_of(shipment._replace(runs=part))
