"""Connects the relay to a client: through its socket or, with TLS, through the asyncio transport of its connection.

`start` returns the `RelayOutput` to the client. After `listen`, received bytes are passed to `received` (empty bytes:
the client has gone). Output to a plain socket copies nothing; with TLS each payload is copied once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from fastflight.gateway.relay.outgoing import NOTHING, Buffers, RelayOutgoing
from fastflight.transport.tcp_info import SendState, send_state

# Bytes of one read of a client: a message of 64 KB with its headers, or many small ones.
READ_BYTES = 128 * 1024

Received = Callable[[bytes], None]


class RelayOutput(Protocol):
    """Sends to a client, in order."""

    @property
    def size(self) -> int:
        """How many bytes wait."""

    @property
    def frames(self) -> int:
        """How many frames wait."""

    def send(self, head: bytes, payload: memoryview = NOTHING, buffer: bytearray | None = None) -> None:
        """Send `head` and then `payload`, a part of the lent `buffer`. Sends nothing after `close`."""

    def close(self) -> None:
        """Drop all that waits."""


class RelaySocket(Protocol):
    """A client's connection, until it is closed."""

    @property
    def own_port(self) -> int | None:
        """The port of this computer that the client is connected to."""

    def start(self, received: Received, drained: Callable[[], None], lost: Callable[[], None]) -> RelayOutput:
        """Set the callbacks. `drained` is called when waiting output was taken, `lost` when the client is gone."""

    def send_state(self) -> SendState | None:
        """Return how much output has reached the client; None if the system does not report it."""

    def listen(self) -> None:
        """Start or resume receiving."""

    def look_again(self) -> None:
        """Try to receive, even if the loop reports nothing; do nothing while paused."""

    def rest(self) -> None:
        """Pause receiving."""

    def shut(self) -> None:
        """Close the sending side. Raises `OSError` if this fails; the caller must then call `close`."""

    def close(self) -> None:
        """Close the connection at once."""


class SocketWire:
    """A client at the non-blocking socket `sock`, on the running loop."""

    def __init__(self, sock: socket.socket, buffers: Buffers) -> None:
        self._sock = sock
        self._buffers = buffers
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._received: Received = _ignore
        self._outgoing: RelayOutgoing | None = None

    @property
    def own_port(self) -> int | None:
        name = self._sock.getsockname()
        return name[1] if isinstance(name, tuple) else None

    def start(self, received: Received, drained: Callable[[], None], lost: Callable[[], None]) -> RelayOutgoing:
        self._received = received
        self._outgoing = RelayOutgoing(self._sock, self._buffers, drained, lost)
        return self._outgoing

    def send_state(self) -> SendState | None:
        return send_state(self._sock)

    def listen(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def look_again(self) -> None:
        # libuv reports an error once, in one event with the bytes before it, and then stops watching.
        if self._reading:
            self._readable()

    def rest(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    def shut(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._outgoing is not None:
            self._outgoing.close()
        self.rest()
        self._sock.close()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._received(data)


class TransportWire(asyncio.Protocol):
    """A client at `transport`, which must be paused. `start` takes it over from its previous protocol."""

    def __init__(self, transport: asyncio.Transport, buffers: Buffers) -> None:
        self._transport = transport
        self._buffers = buffers
        self._received: Received = _ignore
        self._drained: Callable[[], None] = _nothing
        self._lost: Callable[[], None] = _nothing
        self._full = False
        self._closed = False
        # How many frames were sent since the transport became full.
        self.frames = 0

    @property
    def own_port(self) -> int | None:
        name = self._transport.get_extra_info("sockname")
        return name[1] if isinstance(name, tuple) else None

    @property
    def size(self) -> int:
        return self._transport.get_write_buffer_size()

    def start(self, received: Received, drained: Callable[[], None], lost: Callable[[], None]) -> TransportWire:
        self._received, self._drained, self._lost = received, drained, lost
        self._transport.set_protocol(self)
        # The transport counts as full as soon as anything waits. `RelayClient` limits how much may wait.
        self._transport.set_write_buffer_limits(high=0)
        return self

    def send(self, head: bytes, payload: memoryview = NOTHING, buffer: bytearray | None = None) -> None:
        if not self._closed:
            self._transport.write(head + payload)
            self.frames += self._full
        if buffer is not None:
            self._buffers.give(buffer)

    def send_state(self) -> SendState | None:
        return send_state(self._transport.get_extra_info("socket"))

    def listen(self) -> None:
        if not self._closed:
            self._transport.resume_reading()

    def look_again(self) -> None:
        """Do nothing: transports report each error."""

    def rest(self) -> None:
        if not self._closed:
            self._transport.pause_reading()

    def shut(self) -> None:
        self._transport.close()  # sends what waits first; TLS cannot close one direction only

    def close(self) -> None:
        self._closed = True
        self.frames = 0
        self._transport.abort()

    def pause_writing(self) -> None:
        self._full = True
        self.frames = 1

    def resume_writing(self) -> None:
        self._full = False
        self.frames = 0
        if not self._closed:
            self._drained()

    def data_received(self, data: bytes) -> None:
        if not self._closed:
            self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._lost()


def _ignore(data: bytes) -> None:
    """Do nothing: the `received` callback until `start` sets another one."""


def _nothing() -> None:
    """Do nothing: the other callbacks until `start` sets them."""
