"""Limits the connections to the gateway's port in number and in time.

A client that connects and sends nothing, or a byte now and then, costs one descriptor for a short time. When too many
connections have sent no request yet, the oldest of them is closed for each new one: a flood of silent connections does
not keep out a client that sends its request at once. Each `WatchedConnection` has a deadline. All deadlines are checked
once a second, which is cheaper than a timer for each request. A client that does not read its answer is disconnected.

When there is no room, a connection that rests between two requests makes room for a new one: first those on which
nobody has proven who they are, of these one of the address that has most, of these the one that rests longest. Clients
open it again without a word. Requests in progress are never cut for this: while all places are busy, new connections
are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from typing import Generic, Protocol, TypeVar

from fastflight.transport.tcp_info import SendState

# Each has a descriptor and buffers; a page's browser has six.
MAX_CONNECTIONS = 2048
# Of those, ones of one address (of one /64 with IPv6, which a single host has whole): the last quarter is for others,
# also while all of these are busy. On loopback and behind a proxy all clients share an address, and so these places.
MAX_OF_ONE_ADDRESS = MAX_CONNECTIONS * 3 // 4
# Of those, ones that have not asked anything yet. A browser opens a few ahead of need.
MAX_UNASKED = 256
# From connecting, or from the first byte of the next request, to the end of a request's head: a slow phone's.
HEAD_SECONDS = 10.0
# From one piece of a request's content to the next, while there is room for it. A board that writes pauses the client.
CONTENT_STALL_SECONDS = 30.0
# An answered connection waits so long for its next request. A page asks again within a second or not at all.
KEEP_ALIVE_SECONDS = 15.0
# How often connections are looked at.
LOOK_SECONDS = 1.0


Client = TypeVar("Client")

# For so long an answer that nobody reads may keep its device and its memory. Flight has the same limit.
STALL_SECONDS = 120.0
# The bytes that wait in the process, and the state of the connection: on a thin line only the second one changes.
Waiting = tuple[int, SendState | None]


class Unread(Generic[Client]):
    """Compares what waits for each client with what waited before."""

    def __init__(self) -> None:
        # What waited for each client, and since when that is unchanged.
        self._known: dict[Client, tuple[Waiting, float]] = {}

    def is_stalled(self, client: Client, waiting: Waiting | None, now: float) -> bool:
        """Whether it has taken nothing of what waits for it (None: nothing does) for too long, at the time `now`."""
        if waiting is None:
            self.forget(client)
            return False
        known = self._known.get(client)
        if known is None or known[0] != waiting:
            known = self._known[client] = waiting, now
        return now - known[1] >= STALL_SECONDS

    def forget(self, client: Client) -> None:
        """The client has left, or nothing waits for it."""
        self._known.pop(client, None)


class WatchedConnection(Protocol):
    """A connection whose deadline is checked."""

    # When it has waited for too long, by the loop's clock; None while it waits for us.
    due: float | None
    # All that it asked has been answered: to end it is nothing that it did wrong.
    resting: bool
    # Somebody has proven on it who they are.
    proven: bool
    # Where it is from, as `origin_of` gives it.
    origin: str

    def waiting(self) -> Waiting | None:
        """What waits for its client; None while nothing does."""

    def postponed(self) -> bool:
        """Whether it is us who keep it from sending; then it has time from now on."""

    def cut(self, late: bool) -> None:
        """End it: because it was `late`, or to make room."""


class Connections:
    """The open ones of one port. Belongs to its loop."""

    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        max_unasked: int = MAX_UNASKED,
        max_of_one_address: int = MAX_OF_ONE_ADDRESS,
    ) -> None:
        self._max_connections = max_connections
        self._max_unasked = max_unasked
        self._max_of_one_address = max_of_one_address
        # In the order in which they came.
        self._open: dict[WatchedConnection, None] = {}
        self._of_origin: Counter[str] = Counter()
        self._unasked: dict[WatchedConnection, None] = {}
        self._unread: Unread[WatchedConnection] = Unread()
        self._looking: asyncio.TimerHandle | None = None
        # When the next look is to be, by the loop's clock: what is due some seconds after it never is due too early.
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

    def came(self, connection: WatchedConnection) -> bool:
        """Whether there is room for one more; then it counts until it has `gone`."""
        own = self._of_origin[connection.origin] >= self._max_of_one_address
        if own or len(self._open) >= self._max_connections:
            yielding = self._yielding(connection.origin if own else None)
            if yielding is None:
                self.refused += 1
                return False
            self._crowd_out(yielding)
        self._open[connection] = None
        self._of_origin[connection.origin] += 1
        self._unasked[connection] = None
        if len(self._unasked) > self._max_unasked:
            self._crowd_out(next(iter(self._unasked)))
        if self._looking is None:
            self._look_again(asyncio.get_running_loop())
        return True

    def asked(self, connection: WatchedConnection) -> None:
        """The head of a first request has come."""
        self._unasked.pop(connection, None)

    def gone(self, connection: WatchedConnection) -> None:
        """It has ended, or is no longer one of HTTP."""
        if connection in self._open:
            del self._open[connection]
            self._of_origin[connection.origin] -= 1
            if not self._of_origin[connection.origin]:
                del self._of_origin[connection.origin]
        self._unasked.pop(connection, None)
        self._unread.forget(connection)

    def _yielding(self, origin: str | None) -> WatchedConnection | None:
        """The connection that makes room for a new one: one of `origin`, or any for None; None if none rests."""
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
        self.gone(connection)
        connection.cut(late=False)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            if connection.due is not None and connection.due <= now and not connection.postponed():
                self.late += not connection.resting
                # It is told so, and has gone when it has read that; until then it is one that does not read.
                connection.due = None
                connection.cut(late=True)
            elif self._unread.is_stalled(connection, connection.waiting(), now):
                self.not_read += 1
                self.gone(connection)
                connection.cut(late=False)
        if self._open:
            self._look_again(loop)
        else:
            self._looking = None

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time() + LOOK_SECONDS
        self._looking = loop.call_at(self.now, self._look)


def origin_of(address: str) -> str:
    """What counts as one address: an IPv4 address, also one that is written as IPv6, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
