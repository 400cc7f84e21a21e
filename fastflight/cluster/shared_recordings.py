"""The recordings that the servers of a cluster share: a copy of all of them, and the hand-over of this server's rows.

Each server has the rows of all servers in a store of its own, so it reads, lists, and compacts as a server alone does.
What a reader gets was stored by a quorum of NATS. The connection is not the one of the leases, so that a lease never
waits behind recorded rows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fastflight.cluster.connection import ClusterConnection, NatsAddress, replicas_for
from fastflight.cluster.fleet_copy import SEPARATOR, FleetCopy, Recording
from fastflight.cluster.following import Follower
from fastflight.cluster.publishing import Publisher
from fastflight.cluster.recording_stream import RecordingStream
from fastflight.concurrency import Shard
from fastflight.errors import FastFlightError, UnknownName, nearest
from fastflight.log import Extent, Retention, Store
from fastflight.log.retention import RetentionCheck

T = TypeVar("T")

# How long the end of a recorder, and of the server, waits for the hand-over of its last rows.
DRAIN_SECONDS = 5.0
# Before a task that still runs is cancelled again.
CANCEL_SECONDS = 0.5
# The rows of all messages that are fetched at a time are appended within this time, and share a sync.
COPY_SYNC_MS = 20.0
# The copy's part of the folder of recordings, and the follower's position in it.
COPY, POSITION = "fleet", "position.json"


class SharedRecordings:
    """Reads the recordings of all servers, and hands over those of this one. Any thread may use it.

    Its methods raise `TransportError` if NATS cannot be used. The copy is in a folder of `folder`.
    """

    def __init__(
        self, address: NatsAddress, server: str, fleet: str, retention: Retention, folder: Path, holder: str = ""
    ) -> None:
        """Open the copy. `BusyError` if another process writes to it, `StorageError` if the disk fails."""
        self._server = server
        self._retention = RetentionCheck(retention, time.time, time.monotonic)
        self.store = Store(folder / COPY, sync_ms=COPY_SYNC_MS, retention=retention, holder=holder)
        self._copy = FleetCopy(self.store)
        self._connection = ClusterConnection(address, f"fastflight {server}: recordings")
        self._stream = RecordingStream(self._connection, fleet, replicas_for(len(address.servers)))
        self._follower = Follower(self._connection, self._stream, self._copy, folder / COPY / POSITION)
        self._publisher: Publisher | None = None
        # Whether the last `drain` was in time.
        self._keeps_up = True
        # The last deletion of messages in NATS, and whether `end_sweeps` was called.
        self._sweeping: concurrent.futures.Future[int] | None = None
        self._sweeps_ended = False
        self._sweeping_lock = threading.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._shard = Shard("recordings-nats").start()
        self._call(self._connect())

    def names(self) -> list[str]:
        """Return the names of all recordings of the fleet, sorted."""
        self._call(self._follower.sync())
        return self._copy.names()

    def find(self, name: str) -> Recording | None:
        """Return a recording as far as this server has got it; None if it knows of none. NATS is not asked."""
        return self._copy.find(name)

    def log(self, name: str) -> Recording:
        """Return a recording, to read. `UnknownName` if there is none of that name."""
        self._call(self._follower.sync())
        return self.listed(name)

    def listed(self, name: str) -> Recording:
        """As `log`, for a name that `names` has just returned: NATS is not asked again."""
        found = self._copy.find(name)
        if found is None:
            raise UnknownName("no such recording", where=name, hint=nearest(name, self._copy.names()))
        return found

    def device_of(self, log: str) -> str:
        """Return the device that a log of the copy has rows of."""
        return log.rpartition(SEPARATOR)[0]

    def sweep(self) -> int:
        """Delete the oldest rows that exceed the retention, from the copy and from NATS. Any server may do that.

        `CancelledError` of `concurrent.futures` once `end_sweeps` is called.
        """
        self._retention.update()
        swept = self.store.sweep()
        with self._sweeping_lock:
            if self._sweeps_ended:
                raise concurrent.futures.CancelledError
            deleting = self._stream.delete_older(self._retention.max_bytes, self._retention.oldest())
            sweeping = self._sweeping = self._shard.submit(deleting)
        return swept + sweeping.result()

    def end_sweeps(self) -> None:
        """Break off a sweep. NATS may take long to answer it if it has no leader."""
        with self._sweeping_lock:
            self._sweeps_ended = True
        if self._sweeping is not None:
            self._sweeping.cancel()

    def take(self, buffer: Store) -> None:
        """Hand over what is written to `buffer`, from now on until `close`."""
        publisher = Publisher(buffer, self._server, self._stream, self._follower, self._copy)

        async def publish() -> None:
            await self._connection.connected()
            await publisher.run()

        self._publisher = publisher
        self._call(self._begin(publish()))

    def waiting(self, name: str) -> list[Extent]:
        """Return the rows of a recording that are still to be handed over by this server. NATS is not asked."""
        return [] if self._publisher is None else self._publisher.waiting(name)

    def drain(self, name: str) -> bool:
        """Wait until the present rows of a recording are handed over, but not long. Return whether they are.

        This does not wait if NATS has just failed: of many boards that are given up, each would wait.
        """
        if self._publisher is not None:
            seconds = 0.0 if self._publisher.trouble else DRAIN_SECONDS
            self._keeps_up = self._call(self._publisher.drain([name], seconds))
        return self._keeps_up

    def close(self) -> None:
        """Hand over what there is, but not for long, and close the connection and the copy.

        Nobody reads the boards meanwhile, so this does not wait if NATS is away, or if the last `drain` failed.
        """
        if self._publisher is not None:
            seconds = DRAIN_SECONDS if self._connection.is_connected and self._keeps_up else 0
            self._call(self._publisher.drain(self._publisher.names(), seconds))
        # Messages under way are broken off: the buffer has their rows.
        with contextlib.suppress(FastFlightError):
            self._call(self._end())
        self._shard.close()
        self.store.close()

    async def _connect(self) -> None:
        self._connection.open()
        await self._begin(self._follower.run())

    async def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _end(self) -> None:
        running = set(self._tasks)
        while running:
            for task in running:
                task.cancel()
            # `asyncio.wait_for` of Python 3.11, which nats-py uses, may lose a cancellation.
            _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
        await self._connection.aclose()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs on the loop of the connection."""
        return self._shard.submit(work).result()
