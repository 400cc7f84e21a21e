"""Where the devices of a cluster are, and the connections to the servers that have them.

`Routes.route` gives the connection to the owner of a device, or None for a device of this server; it waits for a device
that is being moved. Streams from other servers are noted (`opened`) until they end, so that `check` can end those whose
server has left the cluster.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastflight.client.answers import DEFAULT_TIMEOUT
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.stream import RowStream
from fastflight.device import Inventory
from fastflight.errors import BusyError, UnknownName, nearest

if TYPE_CHECKING:
    from fastflight.app.cluster import ClusterMember

# How long a request waits for a device that is being moved. A dead server's devices are taken over within 6 s.
MOVING_SECONDS = 8.0
# How long it waits at most while servers still take over devices: of thousands, one may be the last. It is less than a
# client waits for an answer.
SETTLING_SECONDS = 40.0
# How often it looks for the owner: seldom after a while, because thousands of requests may wait.
LOOK_SECONDS, LAST_LOOK_SECONDS = 0.05, 0.5
UNOWNED = "no server owns it at the moment"


class Routes:
    """The ways from this server, which has the devices of `inventory`, to those that `owners` names."""

    def __init__(
        self,
        inventory: Inventory,
        owners: ClusterMember,
        credentials: Credentials = NONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owners = owners
        self._clock = clock
        self.inventory = inventory
        self._credentials = credentials
        self._lock = threading.Lock()
        self._connections: dict[str, ServerConnection] = {}
        self._open: dict[RowStream, str] = {}

    def close(self) -> None:
        """Close the connections to other servers. Streams over them end with errors."""
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
            streams = list(self._open)
        for stream in streams:
            stream.cancel()
        for connection in connections:
            connection.close()

    def check(self) -> None:
        """End the streams from servers that have left the cluster: a network may never report that they are gone."""
        alive = {*self.owners.others().values()}
        with self._lock:
            lost = [stream for stream, location in self._open.items() if location not in alive]
            unused = [self._connections.pop(location) for location in self._connections.keys() - alive]
        for stream in lost:
            stream.cancel()
        for connection in unused:
            connection.close()

    def connection(self, location: str) -> ServerConnection:
        """Return the connection to another server."""
        with self._lock:
            if location not in self._connections:
                self._connections[location] = ServerConnection(location, DEFAULT_TIMEOUT, self._credentials)
            return self._connections[location]

    def route(self, device: str) -> ServerConnection | None:
        """Return the connection to the owner; None if the device is here.

        `UnknownName` if no server has it. `BusyError` if nobody can own it, or nobody does for `MOVING_SECONDS`: for
        `SETTLING_SECONDS` while servers take over devices.
        """
        wait = _Wait(self._clock, self.owners)
        while (where := self._place(device, wait)) is None:
            time.sleep(wait.next())
        return self.connection(where) if where else None

    async def aroute(self, device: str) -> ServerConnection | None:
        """As `route`, on an event loop."""
        wait = _Wait(self._clock, self.owners)
        while True:
            if (where := self._place(device, wait)) is not None:
                return self.connection(where) if where else None
            await asyncio.sleep(wait.next())

    def _place(self, device: str, wait: _Wait) -> str | None:
        """Return where the device is: an address, or empty for here. None while it is being moved."""
        if self.inventory.find(device) is not None:
            return ""
        if location := self.owners.location(device):
            return location
        if not self.owners.has(device):
            raise UnknownName("no such device", where=device, hint=nearest(device, self.owners.names()))
        why = self.owners.why_gone(device)
        if why or wait.is_over:
            moving = "It may be moving to another server: ask again in a few seconds"
            raise BusyError(why or UNOWNED, where=device, hint="See `fastflight cluster status`" if why else moving)
        return None

    def opened(self, stream: RowStream, location: str) -> RowStream:
        """Note a stream from another server, until `ended`."""
        with self._lock:
            self._open[stream] = location
        return stream

    def ended(self, stream: RowStream) -> None:
        """Forget a stream, and end it."""
        stream.cancel()
        with self._lock:
            self._open.pop(stream, None)

    @property
    def open_streams(self) -> int:
        """How many streams from other servers are open."""
        return len(self._open)

    def remote_names(self) -> list[str]:
        """The devices that this server does not have now."""
        return [name for name in self.owners.names() if self.inventory.find(name) is None]


class _Wait:
    """How long a request waits for an owner."""

    def __init__(self, clock: Callable[[], float], owners: ClusterMember) -> None:
        self._clock = clock
        self._owners = owners
        self._began = clock()
        self._seconds = LOOK_SECONDS

    @property
    def is_over(self) -> bool:
        waited = self._clock() - self._began
        return waited >= SETTLING_SECONDS or min(waited, self._owners.settled_seconds) >= MOVING_SECONDS

    def next(self) -> float:
        """Return the seconds until the next look."""
        seconds, self._seconds = self._seconds, min(2 * self._seconds, LAST_LOOK_SECONDS)
        return seconds
