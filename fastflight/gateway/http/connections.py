"""Limits the connections to the gateway's port in number and in time, by what asyncio and ASGI tell of each.

A connection is idle while no request of it is in progress: before its first request, between two, and while the head of
one comes. An idle connection is closed after `IDLE_SECONDS`; when there are too many connections, the one that is idle
for longest is closed for a new one. So connections that send nothing, or a byte now and then, keep out no client that
sends its request. A client that does not read its answer is disconnected. All connections are checked once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from typing import Any

from fastflight.gateway.asgi import CERTIFICATE, Application, Receive, Scope, Send
from fastflight.transport.tcp_info import SendState, send_state

# The key of the `Connection` in a scope's `state`.
CONNECTION = "connection"
# Each has a descriptor and buffers; a page's browser has six.
MAX_CONNECTIONS = 2048
# How long a connection may be idle. A page sends its next request within a second or not at all; a slow phone needs
# some seconds for a head.
IDLE_SECONDS = 15.0
# How often connections are checked.
LOOK_SECONDS = 1.0
# How long an answer that nobody reads may keep its device and its memory. Flight has the same limit.
STALL_SECONDS = 120.0
# What may wait for a client between two checks. Sources wait far below it; only answers to a client's pings get there.
MAX_UNSENT_BYTES = 32 * 1024 * 1024
# How long the sources of cancelled requests may clean up.
STOP_SECONDS = 5.0

# The bytes that wait in the process, and TCP's state of the connection: on a slow line only the latter changes.
Waiting = tuple[int, SendState | None]


class Connection:
    """One open connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        # What the application learns of it, in the scope's `state`.
        self.state = {CONNECTION: self, CERTIFICATE: certificate_name(transport.get_extra_info("ssl_object"))}
        self.asked = False
        # Since when it is idle, by the loop's clock; None while a request is in progress.
        self.idle_since: float | None = None
        # What waited for the client when this was last looked at, and since when that is unchanged.
        self._unread: Waiting | None = None
        self._unread_since = 0.0

    def waiting(self) -> Waiting | None:
        """Return what waits for the client to read or to acknowledge; None if nothing does."""
        size, state = self.transport.get_write_buffer_size(), send_state(self.transport.get_extra_info("socket"))
        return (size, state) if size or (state is not None and state.waits) else None

    def is_stalled(self, waiting: Waiting | None, now: float) -> bool:
        """Return whether `waiting` has not changed for `STALL_SECONDS`, at the time `now`."""
        if waiting != self._unread:
            self._unread, self._unread_since = waiting, now
        return waiting is not None and now - self._unread_since >= STALL_SECONDS


class Connections:
    """The open connections of one port. Belongs to its loop."""

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        self._max_connections = max_connections
        # Those that are idle for longest come first.
        self._open: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_check: asyncio.TimerHandle | None = None
        self.refused = 0
        self.late = 0
        self.crowded_out = 0
        self.not_read = 0

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def unasked(self) -> int:
        return sum(not each.asked for each in list(self._open))

    def add(self, connection: Connection) -> None:
        """Add a connection that was just made. If there are too many, cut another one that is idle, or else this."""
        if len(self._open) >= self._max_connections:
            idle = next((each for each in self._open if each.idle_since is not None), None)
            if idle is None:
                self.refused += 1
                connection.transport.abort()
                return
            self.crowded_out += 1
            self._cut(idle)
        self._rest(connection)
        if self._next_check is None:
            self._next_check = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._check_all)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)

    def counting(self, app: Application) -> Application:
        """Return `app`, whose requests count as those of their connections."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            connection: Connection = scope["state"][CONNECTION]
            task = asyncio.current_task()
            assert task is not None
            connection.asked, connection.idle_since = True, None
            self._tasks.add(task)
            try:
                await app(scope, receive, send)
            finally:
                self._tasks.discard(task)
                if connection in self._open:
                    self._rest(connection)

        return counted

    async def end(self) -> None:
        """Cancel the requests that are still in progress, and abort all connections."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for connection in list(self._open):
            connection.transport.abort()
        await asyncio.sleep(0)

    def _rest(self, connection: Connection) -> None:
        """Note that the connection is idle from now on."""
        connection.idle_since = asyncio.get_running_loop().time()
        self._open.pop(connection, None)
        self._open[connection] = None

    def _cut(self, connection: Connection) -> None:
        self.remove(connection)
        connection.transport.abort()

    def _check_all(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._open):
            waiting = connection.waiting()
            too_much = waiting is not None and waiting[0] > MAX_UNSENT_BYTES
            if too_much or connection.is_stalled(waiting, now):
                self.not_read += 1
                self._cut(connection)
            elif connection.idle_since is not None and waiting is not None:
                self._rest(connection)
            elif connection.idle_since is not None and now - connection.idle_since >= IDLE_SECONDS:
                self.late += not connection.asked
                self._cut(connection)
        self._next_check = loop.call_later(LOOK_SECONDS, self._check_all) if self._open else None


def certificate_name(tls: ssl.SSLObject | None) -> str:
    """Return the name in a verified client certificate: its first alternative name, else its common name.

    gRPC gives the Flight edge the same name. Empty if there is none, or if the first alternative name is of another
    kind than DNS, email, URI and IP address.
    """
    certificate: Any = (tls.getpeercert() if tls is not None else None) or {}
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            with contextlib.suppress(ValueError):
                return str(ipaddress.ip_address(value))
        return str(value) if kind in ("DNS", "email", "URI") else ""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str((common or [""])[0])
