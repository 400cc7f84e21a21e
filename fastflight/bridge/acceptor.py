"""A listening port: every connection that comes in there becomes one of its owner's.

One connection is accepted in each turn of the loop, so a crowd is met as fast as its owner can say who must go, and
never costs more descriptors than that. asyncio's own server takes the whole backlog at once, and when it is closed
before those connections were made, nobody closes them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable

# Connections that the system keeps until they are accepted: a fleet's tools that all start at the same time.
BACKLOG = 512
# A process that has no descriptor left for a connection: it may have one when another client has gone.
SHORTAGE_SECONDS = 0.5


class Acceptor:
    """Accepts on `listener` from now on. `protocol` makes what each connection is."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        # Accepted, and not yet the protocol's.
        self._coming: set[asyncio.Task[object]] = set()
        self._start()

    @property
    def port(self) -> int:
        """The number that it was given."""
        number: int = self._listener.getsockname()[1]
        return number

    async def aclose(self) -> None:
        """Give the port back. All that was accepted is its protocol's when this returns; what was not is refused."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        await asyncio.gather(*self._coming, return_exceptions=True)

    def _start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # it has gone again
        except OSError:
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(SHORTAGE_SECONDS, self._start)
            return
        accepted.setblocking(False)
        coming = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, accepted))
        self._coming.add(coming)
        coming.add_done_callback(self._coming.discard)


async def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; 0 takes a free port. `OSError` where it cannot be had.

    A name with several addresses (`localhost`) is listened to at one of them, IPv4 if it has that: what connects to the
    name tries them all.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix" and sys.platform != "cygwin":
            # Elsewhere it would let others have the port at the same time. Here: a port just given back.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
