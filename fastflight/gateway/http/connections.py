"""Limits the connections to the gateway's port in number and in time.

A client that connects and sends nothing, or a byte now and then, costs one descriptor for a short time. When too many
connections have sent no request yet, the oldest of them is closed for each new one: a flood of silent connections does
not keep out a client that sends its request at once. Each `WatchedConnection` has a deadline. All deadlines are checked
once a second, which is cheaper than a timer for each request. A client that does not read its answer is disconnected.

When all places are taken, an idle connection (one between two requests) is closed for a new one: first those without
an authenticated request; of these, one of the address that has most; of these, the one that is idle for longest.
Clients reopen it silently. Requests in progress are never cut for this: if none is idle, new ones are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from typing import Generic, Protocol, TypeVar

from fastflight.transport.tcp_info import SendState

# Each has a descriptor and buffers; a page's browser has six.
MAX_CONNECTIONS = 2048
# Connections of one address (with IPv6 of one /64, since a single host has a whole one): the last quarter stays free
# for other addresses. On loopback and behind a proxy all clients share one address, and so these places.
MAX_OF_ONE_ADDRESS = MAX_CONNECTIONS * 3 // 4
# Connections that have not sent a request yet. A browser opens a few in advance.
MAX_UNASKED = 256
# How long a client may take to send the head of a request, from connecting or from its first byte; enough for a slow
# phone.
HEAD_SECONDS = 10.0
# How long a client may pause between two pieces of a request's content. Time in which the gateway does not read is not
# counted: while a board writes, the gateway pauses its client.
CONTENT_STALL_SECONDS = 30.0
# How long an idle connection waits for its next request. A page sends one within a second or not at all.
KEEP_ALIVE_SECONDS = 15.0
# How often connections are checked.
LOOK_SECONDS = 1.0


Client = TypeVar("Client")

# How long an answer that nobody reads may keep its device and its memory. Flight has the same limit.
STALL_SECONDS = 120.0
# The bytes that wait in the process, and TCP's state of the connection: on a slow line only the latter changes.
Waiting = tuple[int, SendState | None]


class StalledReaders(Generic[Client]):
    """Finds clients that do not read: compares what waits for each with what waited before."""

    def __init__(self) -> None:
        # By client: what waits for it, and since when this is unchanged.
        self._known: dict[Client, tuple[Waiting, float]] = {}

    def is_stalled(self, client: Client, waiting: Waiting | None, now: float) -> bool:
        """Return whether `waiting` (None: nothing waits) has not changed for `STALL_SECONDS`, at the time `now`."""
        if waiting is None:
            self.forget(client)
            return False
        known = self._known.get(client)
        if known is None or known[0] != waiting:
            known = self._known[client] = waiting, now
        return now - known[1] >= STALL_SECONDS

    def forget(self, client: Client) -> None:
        """Forget a client that has left, or for which nothing waits."""
        self._known.pop(client, None)


class WatchedConnection(Protocol):
    """A connection whose deadline is checked."""

    # The deadline of its client, by the loop's clock; None while the client waits for the gateway.
    due: float | None
    # It is idle: all requests are answered, so a passed deadline is no fault of the client.
    resting: bool
    # It has carried an authenticated request.
    proven: bool
    # The client's address, as `origin_of` returns it.
    origin: str

    def waiting(self) -> Waiting | None:
        """Return what waits for the client to read; None if nothing does."""

    def postponed(self) -> bool:
        """If the gateway has paused the client, start its deadline anew and return True; else return False."""

    def cut(self, late: bool) -> None:
        """End the connection: because its deadline has passed (`late`), or to make room."""


class Connections:
    """The open connections of one port. Belongs to its loop."""

    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        max_unasked: int = MAX_UNASKED,
        max_of_one_address: int = MAX_OF_ONE_ADDRESS,
    ) -> None:
        self._max_connections = max_connections
        self._max_unasked = max_unasked
        self._max_of_one_address = max_of_one_address
        # In the order in which they were opened.
        self._open: dict[WatchedConnection, None] = {}
        self._of_origin: Counter[str] = Counter()
        self._unasked: dict[WatchedConnection, None] = {}
        self._readers: StalledReaders[WatchedConnection] = StalledReaders()
        self._next_check: asyncio.TimerHandle | None = None
        # The time of the next check, by the loop's clock. Deadlines counted from it are never too early.
        self.now = 0.0
        self.refused = 0
        self.late = 0
        self.crowded_out = 0
        self.not_read = 0

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def unasked(self) -> int:
        return len(self._unasked)

    def admit(self, connection: WatchedConnection) -> bool:
        """Add a connection, if there is room or another one can be closed for it; return whether it was added."""
        own = self._of_origin[connection.origin] >= self._max_of_one_address
        if own or len(self._open) >= self._max_connections:
            idle = self._replaceable(connection.origin if own else None)
            if idle is None:
                self.refused += 1
                return False
            self._crowd_out(idle)
        self._open[connection] = None
        self._of_origin[connection.origin] += 1
        self._unasked[connection] = None
        if len(self._unasked) > self._max_unasked:
            self._crowd_out(next(iter(self._unasked)))
        if self._next_check is None:
            self._schedule_check(asyncio.get_running_loop())
        return True

    def note_request(self, connection: WatchedConnection) -> None:
        """Note that the head of a request has come."""
        self._unasked.pop(connection, None)

    def remove(self, connection: WatchedConnection) -> None:
        """Remove a connection that has ended, or that HTTP has handed over to something else."""
        if connection in self._open:
            del self._open[connection]
            self._of_origin[connection.origin] -= 1
            if not self._of_origin[connection.origin]:
                del self._of_origin[connection.origin]
        self._unasked.pop(connection, None)
        self._readers.forget(connection)

    def _replaceable(self, origin: str | None) -> WatchedConnection | None:
        """Return the idle connection to close for a new one, of `origin` if that is not None; None if none is idle."""
        resting = (
            each
            for each in self._open
            if each.resting and (origin is None or each.origin == origin) and each.waiting() is None
        )
        return min(
            resting, key=lambda each: (each.proven, -self._of_origin[each.origin], each.due or 0.0), default=None
        )

    def _crowd_out(self, connection: WatchedConnection) -> None:
        self.crowded_out += 1
        self.remove(connection)
        connection.cut(late=False)

    def _check_all(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            if connection.due is not None and connection.due <= now and not connection.postponed():
                self.late += not connection.resting
                # The client gets an error; from here on it is watched only as one that may not read.
                connection.due = None
                connection.cut(late=True)
            elif self._readers.is_stalled(connection, connection.waiting(), now):
                self.not_read += 1
                self.remove(connection)
                connection.cut(late=False)
        if self._open:
            self._schedule_check(loop)
        else:
            self._next_check = None

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time() + LOOK_SECONDS
        self._next_check = loop.call_at(self.now, self._check_all)


def origin_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, even if written as IPv6, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
