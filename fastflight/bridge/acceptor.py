"""A listening port that gives each accepted connection to an asyncio protocol, which the owner of the port makes.

`open_listener` opens the listening socket; an `Acceptor` accepts on it until `aclose`. It accepts one connection in
each turn of the event loop, so its owner can refuse connections before more of them use up descriptors. asyncio's own
server accepts the whole backlog at once, and if it is closed before it has set these connections up, nothing closes
them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable

# Connections that the system queues until they are accepted: enough for a fleet's tools that all start together.
BACKLOG = 512
# How long to wait when the process has no descriptor left for a connection: another client may have left by then.
SHORTAGE_SECONDS = 0.5


class Acceptor:
    """Accepts connections on `listener` on the running loop. `protocol` makes the protocol of each connection."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        # Accepted connections whose protocol is not set up yet.
        self._pending: set[asyncio.Task[object]] = set()
        self._start()

    @property
    def port(self) -> int:
        """The number of the port."""
        number: int = self._listener.getsockname()[1]
        return number

    async def aclose(self) -> None:
        """Close the port, and wait until each accepted connection has its protocol.

        The system refuses connections that were not accepted.
        """
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        await asyncio.gather(*self._pending, return_exceptions=True)

    def _start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # the peer has left already
        except OSError:
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(SHORTAGE_SECONDS, self._start)
            return
        accepted.setblocking(False)
        setup = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, accepted))
        self._pending.add(setup)
        setup.add_done_callback(self._pending.discard)


async def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at `host` and `port`; 0 takes a free port. Raises `OSError` if it cannot.

    If `host` is a name with several addresses (`localhost`), listen at one of them, IPv4 if there is one: clients that
    connect to the name try all of them.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix" and sys.platform != "cygwin":
            # Allows a port that was closed just before. On other systems it would let two processes share the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
