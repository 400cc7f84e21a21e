"""Where a board's line ends on the host: a socket to a transport, or a listening socket.

A `Link` is read by one thread and written to by another. What a board sends to a host that is not there is lost, as
on a serial line.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import Protocol

# A connection that does not come about on the loopback in this time will not.
CONNECT_SECONDS = 10.0
# One read: large enough that bulk transfer is not bound by the number of calls.
RECEIVE_SIZE = 256 * 1024
# Linux says that the peer has closed although its last bytes were not read yet; elsewhere that shows only in order.
HANG_UP = getattr(select, "POLLRDHUP", 0)


class Link(Protocol):
    """The host's end of the wire."""

    @property
    def address(self) -> str:
        """Where a host finds it; empty when it came to the host by itself."""

    def receive(self) -> bytes:
        """What the host sent, waiting for it; nothing when no host will ever come again."""

    def send(self, data: memoryview) -> None:
        """Give the host all of `data`, waiting while it takes none. `OSError` when none will ever come again."""

    def has_ended(self) -> bool:
        """Whether no host will ever come again, as far as that shows without reading."""


class Connected:
    """A socket to the transport that started the board."""

    address = ""

    def __init__(self, host_and_port: str, token: str) -> None:
        """Connect, and prove by `token` that we are the child it started."""
        host, port = _split(host_and_port)
        self._socket = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(token.encode() + b"\n")
        self._parent = os.getppid()

    def receive(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE_SIZE)
        except OSError:
            return b""

    def send(self, data: memoryview) -> None:
        self._socket.sendall(data)

    def has_ended(self) -> bool:
        """TCP hides a close behind more unread bytes than its window holds.

        Then the end of the parent still shows, and a transport that merely closes has to end its child itself.
        """
        if os.getppid() != self._parent:
            return True
        if not HANG_UP:
            return False
        poll = select.poll()
        poll.register(self._socket, HANG_UP)
        return bool(poll.poll(0))


class Listening:
    """A listening socket with one client at a time, for which the board outlives them. Another one is hung up on."""

    def __init__(self, host_and_port: str) -> None:
        self._listener = socket.create_server(_split(host_and_port))
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._client: socket.socket | None = None
        # Held while a client is written to, so that none is closed under a write.
        self._sending = threading.Lock()

    def receive(self) -> bytes:
        while True:
            client = self._client
            ready, _, _ = select.select([self._listener] if client is None else [self._listener, client], [], [])
            # The client first: the next one may have come when it left.
            if client is None or client not in ready:
                self._welcome()
            else:
                data = b""
                with contextlib.suppress(OSError):
                    data = client.recv(RECEIVE_SIZE)
                if data:
                    return data
                self._client = None
                # Ends a write that waits for the client.
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                with self._sending:
                    client.close()

    def send(self, data: memoryview) -> None:
        with self._sending:
            client = self._client
            if client is not None:
                with contextlib.suppress(OSError):
                    client.sendall(data)

    def has_ended(self) -> bool:
        return False

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            if self._client is not None:
                client.close()
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._client = client


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
