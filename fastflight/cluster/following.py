"""Follows the stream of recordings: adds what all servers have recorded to this server's copy, again and again.

It asks for the messages after its position, so there is no consumer in NATS that could fall silent. Rows are durable in
the copy before the position is stored. After a crash some messages are read again, and their rows are told by their
numbers. The position also has the time of its message: if NATS has lost the end of the stream, or somebody has deleted
it, another message or none is there, and all messages are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import structlog

from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.fleet_copy import FleetCopy
from fastflight.cluster.recording_stream import RecordingStream, Stored, is_short
from fastflight.cluster.shipment import Shipment, decode
from fastflight.concurrency import off_loop
from fastflight.errors import FastFlightError, TransportError
from fastflight.files import replacement

log = structlog.get_logger(__name__)

# Between two looks for new messages. Readers do not wait for the next one. All rows of a device since the last look are
# added together, so rare looks cost less.
LOOK_SECONDS = 10.0
# Rows that are added to the copy at a time, roughly: what is held in memory.
ADD_BYTES = 16 * 1024 * 1024
# A node that does not have the newest messages yet is given so long.
LAG_SECONDS = 0.05
# Before the next look after a failure.
RETRY_SECONDS = 1.0
# How long a reader waits until the copy has what was stored when it asked. A new leader takes about five seconds.
PATIENCE_SECONDS = 20.0


class Position:
    """How far the stream was read: `seq` and `time` of the last message, and when the stream was created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.created = self.seq = self.time = 0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # there is none: all messages are read
            stored = json.loads(path.read_bytes())
            self.created, self.seq, self.time = (int(stored[key]) for key in ("created", "seq", "time"))

    def move(self, created: int, seq: int, time: int) -> None:
        """Go to another message."""
        self.created, self.seq, self.time = created, seq, time

    def store(self) -> None:
        """Write it to the disk."""
        with replacement(self._path, sync=False) as file:
            file.write(json.dumps({"created": self.created, "seq": self.seq, "time": self.time}).encode())


class Follower:
    """Keeps `copy` up to date, on the loop of `connection`, while `run` runs. Its position is in the file `path`."""

    def __init__(self, connection: ClusterConnection, stream: RecordingStream, copy: FleetCopy, path: Path) -> None:
        self._connection = connection
        self._stream = stream
        self._copy = copy
        self._position = Position(path)
        self._generation = 0
        self._wake, self._progress = asyncio.Event(), asyncio.Event()
        # Readers that wait until the copy is whole.
        self._readers = 0
        self._trouble = ""

    async def sync(self) -> None:
        """Return when the copy has what is in the stream now.

        `TransportError` if NATS cannot be used, or the copy is too far behind.
        """
        bounds = await self._stream.bounds()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                self._readers += 1
                try:
                    while (self._position.created, self._position.seq) < (bounds.created, bounds.last):
                        self._wake.set()
                        await self._progress.wait()
                    return
                finally:
                    self._readers -= 1
        behind = bounds.last - self._position.seq
        raise TransportError(
            f"this server has not got all recordings yet: {behind} messages are left",
            where="recordings",
            hint=self._trouble or "Ask another server, or try again in a while",
        )

    async def run(self) -> None:
        """Follow the stream until cancelled."""
        while True:
            client = await self._connection.connected()
            self._generation = 0
            try:
                while self._connection.is_connected and await self._connection.connected() is client:
                    await self._look()
            except Exception as error:  # the task's edge: what fails now may work in a second
                trouble = error.what if isinstance(error, FastFlightError) else f"{type(error).__name__}: {error}"
                if trouble != self._trouble:
                    log.warning("the recordings of other servers cannot be fetched; trying again", error=str(error))
                self._trouble = trouble
                await asyncio.sleep(RETRY_SECONDS)

    async def _look(self) -> None:
        """Add the next messages, or wait a moment if there are none."""
        if self._generation != self._stream.generation or not self._generation:
            await self._begin()
        page = await self._stream.page(self._position.seq + 1)
        if not page and not await self._is_at_end():
            return
        if page:
            if not await self._is_same():
                await self._begin()
                return
            await off_loop(self._add, await self._whole(page))
            self._note_progress()
        if self._trouble:
            log.info("the recordings of other servers are fetched again")
            self._trouble = ""
        if not page or (not self._readers and is_short(page)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    async def _begin(self) -> None:
        """Find out whether the stream is the one that was followed, and whether its message is still there."""
        bounds = await self._stream.bounds()
        self._generation = self._stream.generation
        if self._position.created == bounds.created and self._position.seq <= bounds.last:
            if self._position.seq < bounds.first:
                self._move(bounds.first - 1, 0)
                return
            if await self._is_same():
                return
        self._move(max(bounds.first - 1, 0), 0, bounds.created)

    async def _is_same(self) -> bool:
        """Whether the message at the position is still there, so that what comes next does follow it.

        Rows that were skipped could not be added later: those of one server must come in order.
        """
        position = self._position
        if not position.time:
            return (await self._stream.bounds()).created == position.created
        found = await self._stream.page(position.seq, 1)
        return bool(found) and (found[0].seq, found[0].time) == (position.seq, position.time)

    async def _is_at_end(self) -> bool:
        """Whether there are no more messages, as a node has said. The leader is asked only if a reader waits."""
        if not self._readers:
            return True
        bounds = await self._stream.bounds()
        if bounds.created != self._position.created:
            await self._begin()
        elif bounds.last <= self._position.seq:
            return True
        elif await self._stream.next(self._position.seq + 1) is None:
            self._move(bounds.last, 0)  # those after the position are damaged
        else:
            await asyncio.sleep(LAG_SECONDS)
        return False

    async def _whole(self, page: list[Stored]) -> list[Stored]:
        """Return a page with the messages that the node has left out, if another one has them."""
        whole: list[Stored] = []
        expected = self._position.seq + 1
        for message in page:
            if message.seq > expected:
                first = max(expected, (await self._stream.bounds()).first)
                found = await self._stream.between(first, message.seq - 1) if first < message.seq else []
                if missing := message.seq - first - len(found):
                    log.error("recorded rows are damaged in NATS", messages=missing, from_seq=first)
                whole += found
            whole.append(message)
            expected = message.seq + 1
        return whole

    def _add(self, page: list[Stored]) -> None:
        """Add the rows of messages to the copy. When they are durable, move after them."""
        shipments: list[Shipment] = []
        size = 0
        for message in page:
            if (shipment := decode(message.data)) is None:
                log.error("a message of the recordings is damaged in NATS", seq=message.seq)
                continue
            shipments.append(shipment)
            size += shipment.rows.nbytes
            if size >= ADD_BYTES:
                self._copy.add(shipments)
                shipments, size = [], 0
        self._copy.add(shipments)
        self._position.move(self._position.created, page[-1].seq, page[-1].time)
        self._position.store()

    def _move(self, seq: int, at: int, created: int | None = None) -> None:
        self._position.move(self._position.created if created is None else created, seq, at)
        self._note_progress()

    def _note_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
