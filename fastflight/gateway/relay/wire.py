"""The two ways to a client of the relay: its socket, or under TLS the transport that it came by.

From `start` on, a `RelaySocket` passes what it receives to `heard` (empty bytes: the client has gone) and returns the
`RelayOutput` to the client. A plain socket's output copies nothing; TLS copies each payload once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from fastflight.gateway.relay.outgoing import NOTHING, Buffers, RelayOutgoing
from fastflight.transport.tcp_info import SendState, send_state

# One read of a client: a message of 64 KB with what surrounds it, or many small ones.
READ_BYTES = 128 * 1024

Heard = Callable[[bytes], None]


class RelayOutput(Protocol):
    """What goes to a client, in order."""

    @property
    def size(self) -> int:
        """Bytes that wait."""

    @property
    def frames(self) -> int:
        """Frames that wait."""

    def send(self, head: bytes, payload: memoryview = NOTHING, buffer: bytearray | None = None) -> None:
        """Send `head` and then `payload`, a part of the lent `buffer`. After `close`: nothing."""

    def close(self) -> None:
        """Throw away what waits."""


class RelaySocket(Protocol):
    """A client's connection, until it is closed."""

    @property
    def own_port(self) -> int | None:
        """The port of this computer that the client came to."""

    def start(self, heard: Heard, drained: Callable[[], None], lost: Callable[[], None]) -> RelayOutput:
        """Begin; `drained` is told whenever what waited was taken, `lost` when the client is gone."""

    def send_state(self) -> SendState | None:
        """How much of what was sent has reached the client; None where the system does not tell."""

    def listen(self) -> None:
        """Hear the client, if it is not heard."""

    def look_again(self) -> None:
        """Hear what there is, if it is heard at all, whatever the loop has told."""

    def rest(self) -> None:
        """Hear it no more, for now."""

    def shut(self) -> None:
        """Say that nothing follows. `OSError` where that cannot be said: then `close`."""

    def close(self) -> None:
        """End it now."""


class SocketWire:
    """The socket `sock`, which does not block, on the running loop."""

    def __init__(self, sock: socket.socket, buffers: Buffers) -> None:
        self._sock = sock
        self._buffers = buffers
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._heard: Heard = _unheard
        self._outgoing: RelayOutgoing | None = None

    @property
    def own_port(self) -> int | None:
        name = self._sock.getsockname()
        return name[1] if isinstance(name, tuple) else None

    def start(self, heard: Heard, drained: Callable[[], None], lost: Callable[[], None]) -> RelayOutgoing:
        self._heard = heard
        self._outgoing = RelayOutgoing(self._sock, self._buffers, drained, lost)
        return self._outgoing

    def send_state(self) -> SendState | None:
        return send_state(self._sock)

    def listen(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def look_again(self) -> None:
        # libuv tells of an error once, in one event with the bytes before it, and watches no more.
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
        self._heard(data)


class TransportWire(asyncio.Protocol):
    """The connection of `transport`, which has been read so far by somebody else, and is paused."""

    def __init__(self, transport: asyncio.Transport, buffers: Buffers) -> None:
        self._transport = transport
        self._buffers = buffers
        self._heard: Heard = _unheard
        self._drained: Callable[[], None] = _nothing
        self._lost: Callable[[], None] = _nothing
        self._full = False
        self._closed = False
        # Frames that were sent since the transport was full.
        self.frames = 0

    @property
    def own_port(self) -> int | None:
        name = self._transport.get_extra_info("sockname")
        return name[1] if isinstance(name, tuple) else None

    @property
    def size(self) -> int:
        return self._transport.get_write_buffer_size()

    def start(self, heard: Heard, drained: Callable[[], None], lost: Callable[[], None]) -> TransportWire:
        self._heard, self._drained, self._lost = heard, drained, lost
        self._transport.set_protocol(self)
        # It is full as soon as anything waits: how much may is the client's business.
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
        """Transports are told of each error."""

    def rest(self) -> None:
        if not self._closed:
            self._transport.pause_reading()

    def shut(self) -> None:
        self._transport.close()  # after what waits; TLS has no end of one direction

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
            self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._lost()


def _unheard(data: bytes) -> None:
    """Before the start."""


def _nothing() -> None:
    """Before the start."""
