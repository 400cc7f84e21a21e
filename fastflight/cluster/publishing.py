"""Hands the rows that this server records over to the stream of the fleet.

Recorders write to the embedded log of this server, the buffer. From there the new rows of all devices are published,
many times a second, in one message if they fit. While NATS cannot be used, recording goes on in the buffer, and what it
holds is handed over later, also by the next process that opens the buffer. The buffer keeps the newest rows up to its
size, handed over or not; rows that it had to delete before are a gap in the recording, which says how many they are.

A message that was sent twice, because its acknowledgement was lost, does no harm: rows are told by their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import structlog

from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.following import Follower
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.cluster.shipment import Run, encode
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError
from fastflight.log import Extent, Log, Missing, Range, Store

log = structlog.get_logger(__name__)

# How often the buffer is checked for new rows.
CHECK_SECONDS = 0.2
# Before the next attempt after a failure.
RETRY_SECONDS = 1.0
# Rows that are read from the buffer at a time, roughly. Their messages are smaller: they are compressed.
STEP_BYTES = 1024 * 1024
# A message may have 1 MB in NATS as it comes, headers included.
MAX_MESSAGE_BYTES = 1_000_000


class Step(NamedTuple):
    """New rows of the buffer, up to which number each device's are in it, and devices whose rows cannot be read."""

    runs: list[Run]
    ends: dict[str, int]
    failed: dict[str, str]


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
        devices = self._buffer.beyond(self._handed)
        if not devices:
            return False
        step = await off_loop(self._read, devices)
        for message, runs in messages_of(self._server, step.runs):
            await self._stream.publish(self._server, message)
            self._handed.update((run.device, run.next) for run in runs)
            self._note_progress()
        self._handed.update((device, max(end, self._handed.get(device, 0))) for device, end in step.ends.items())
        self._note_progress()
        for device, trouble in step.failed.items():
            if self._failed.get(device) != trouble:
                log.warning("recorded rows of a device cannot be handed over", device=device, error=trouble)
        self._failed = step.failed
        return len(step.ends) + len(step.failed) < len(devices)

    def _note_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _read(self, devices: list[str]) -> Step:
        """Read new rows of devices from the buffer, until there are enough for now."""
        step, size = Step([], {}, {}), 0
        for device in devices:
            if size >= STEP_BYTES:
                break
            found = self._buffer.log(device)
            end = found.durable_end
            try:
                for run in _new_rows(found, self._handed.get(device, 0)):
                    step.runs.append(run)
                    size += run.rows.nbytes
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
    with closing(source.read(Range(from_seq=position))) as items:
        for item in items:
            if not isinstance(item, Missing):
                yield Run(source.name, item.first, item.batch, paused_until)
                position = item.last + 1
            elif item.reason == "not recorded" and item.first <= max(position, paused_until):
                paused_until = item.last + 1


def messages_of(server: str, runs: list[Run]) -> Iterator[tuple[bytes, list[Run]]]:
    """Yield messages with these runs, and the runs of each. A row that is too large for NATS is lost."""
    if not runs:
        return
    message = encode(server, runs)
    if len(message) <= MAX_MESSAGE_BYTES:
        yield message, runs
        return
    first, *others = runs
    if others:
        half = len(runs) // 2
        parts = runs[:half], runs[half:]
    elif (rows := first.rows.num_rows) > 1:
        parts = (
            [first._replace(rows=first.rows.slice(0, rows // 2))],
            [Run(first.device, first.first + rows // 2, first.rows.slice(rows // 2))],
        )
    else:
        log.warning("a recorded row is lost: it is too large for NATS", device=first.device, seq=first.first)
        return
    for part in parts:
        yield from messages_of(server, part)
