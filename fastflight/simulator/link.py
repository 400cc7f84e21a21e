"""The board's connection to the host: a socket to a transport, or a listening socket.

One thread reads a `Link`, another writes to it. Bytes sent while no host is connected are lost, as on a serial line.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import Protocol

# A loopback connection that takes longer will never succeed.
CONNECT_SECONDS = 10.0
# Bytes per read: large enough that the number of calls does not limit bulk transfers.
RECEIVE_SIZE = 256 * 1024
# Linux reports that the peer has closed while its last bytes are unread; other systems only after they are read.
HANG_UP = getattr(select, "POLLRDHUP", 0)


class Link(Protocol):
    """The connection to the host, seen from the board."""

    @property
    def address(self) -> str:
        """Where a host can connect; empty if the board itself connected to the host."""

    def receive(self) -> bytes:
        """Wait for bytes from the host and return them; empty when no host can come again."""

    def send(self, data: memoryview) -> None:
        """Send all of `data`, waiting while the host takes none. Raises `OSError` when no host can come again."""

    def has_ended(self) -> bool:
        """Whether no host can come again, as far as this is known without reading."""


class Connected:
    """A socket to the transport that started the board."""

    address = ""

    def __init__(self, host_and_port: str, token: str) -> None:
        """Connect, and send `token` to prove that this is the child process that the transport started."""
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
        """Whether the transport has closed the socket, or its process has ended.

        With more unread bytes than the TCP window holds, a close is not visible. The end of the parent process is; a
        transport that closes the socket but lives on must end its child itself.
        """
        if os.getppid() != self._parent:
            return True
        if not HANG_UP:
            return False
        poll = select.poll()
        poll.register(self._socket, HANG_UP)
        return bool(poll.poll(0))


class Listening:
    """A listening socket with one client at a time. A second client is disconnected. The board outlives its clients."""

    def __init__(self, host_and_port: str) -> None:
        self._listener = socket.create_server(_split(host_and_port))
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._client: socket.socket | None = None
        # Held during a write, so that a client is not closed while it is written to.
        self._sending = threading.Lock()

    def receive(self) -> bytes:
        while True:
            client = self._client
            ready, _, _ = select.select([self._listener] if client is None else [self._listener, client], [], [])
            # The client first: it may have left before the next one connected.
            if client is None or client not in ready:
                self._accept()
            else:
                data = b""
                with contextlib.suppress(OSError):
                    data = client.recv(RECEIVE_SIZE)
                if data:
                    return data
                self._client = None
                # This ends a write that is waiting for the client.
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

    def _accept(self) -> None:
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
