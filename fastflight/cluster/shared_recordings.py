"""The recordings that the servers of a cluster share: a connection to NATS of their own, and the hand-over to it.

The connection is not the one of the leases, so that a lease never waits behind recorded rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from fastflight.cluster.connection import ClusterConnection, NatsAddress, replicas_for
from fastflight.cluster.handover import HandOver
from fastflight.cluster.replicated_log import ReplicatedLog
from fastflight.cluster.replicated_store import ReplicatedStore
from fastflight.concurrency import Shard
from fastflight.errors import FastFlightError
from fastflight.log import Extent, Retention, Store

# How long the end of a recorder, and of the server, waits for the hand-over of its last rows.
DRAIN_SECONDS = 5.0


class SharedRecordings:
    """Reads the recordings of all servers, and hands over those of this one. Any thread may use it.

    Its methods raise `TransportError` if NATS cannot be used. `token_of` returns the fencing token of the lease of a
    device; it may be set later. `folder` is for files of a compaction that runs.
    """

    def __init__(self, address: NatsAddress, name: str, fleet: str, retention: Retention, folder: Path) -> None:
        self._folder = folder
        self.token_of: Callable[[str], int] = lambda device: 0
        self._shard = Shard("recordings-nats").start()
        try:
            self._connection = self._shard.submit(_opened(address, name)).result()
        except BaseException:
            self._shard.close()
            raise
        replicas = replicas_for(len(address.servers))
        self._store = ReplicatedStore(self._connection, self._shard, fleet, replicas=replicas, retention=retention)
        self._hand_over: HandOver | None = None
        # Whether the last `drain` was in time.
        self._keeps_up = True

    def names(self) -> list[str]:
        """Return the names of all recordings of the fleet, sorted."""
        return self._store.names()

    def find(self, name: str) -> ReplicatedLog | None:
        """Return a recording, to read; None if there is none of that name."""
        return self._store.find(name)

    def log(self, name: str) -> ReplicatedLog:
        """Return a recording, to read. `UnknownName` if there is none of that name."""
        return self._store.log(name)

    def sweep(self) -> int:
        """Delete the oldest rows that exceed the retention. Any server may do that."""
        return self._store.sweep()

    def compact(self, on_batch: Callable[[], object]) -> int:
        """Convert the oldest rows to Parquet, and return how many parts were made. See `ReplicatedStore.compact`."""
        return len(self._store.compact(self._folder, on_batch))

    def take(self, buffer: Store) -> None:
        """Hand over what is written to `buffer`, from now on until `close`."""
        self._hand_over = HandOver(buffer, self._store, self._shard, lambda device: self.token_of(device))

    def waiting(self, name: str) -> list[Extent]:
        """Return the rows of a recording that are still to be handed over by this server. NATS is not asked."""
        return [] if self._hand_over is None else self._hand_over.waiting(name)

    def drain(self, name: str) -> bool:
        """Wait until the present rows of a recording are handed over, but not long. Return whether they are."""
        self._keeps_up = self._hand_over is None or self._hand_over.drain([name], DRAIN_SECONDS)
        return self._keeps_up

    def close(self) -> None:
        """Hand over what there is, but not for long, and close the connection.

        Nobody reads the boards meanwhile, so this does not wait if NATS is away, or if the last `drain` failed.
        """
        if self._hand_over is not None:
            self._hand_over.close(DRAIN_SECONDS if self._connection.is_connected and self._keeps_up else 0)
        # Messages under way are broken off: the buffer has their rows.
        with contextlib.suppress(FastFlightError):
            self._shard.submit(self._connection.aclose()).result()
        self._shard.close()


async def _opened(address: NatsAddress, name: str) -> ClusterConnection:
    connection = ClusterConnection(address, name)
    connection.open()
    return connection
