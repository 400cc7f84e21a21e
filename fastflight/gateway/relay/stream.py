"""One relayed stream: passes bytes between a TCP connection to a target and a stream on a client's connection.

Bytes of the target are read into a lent buffer, at most as many as the client has given credit for, and sent without a
copy. While the client has no credit or no room, the target is not read. Bytes of the client are sent to the target at
once, or wait here; at most a window of them, since credit is given back when the system has taken them. Only connecting
needs a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from typing import Protocol

from websockets.frames import Opcode

from fastflight.errors import FastFlightError, RequestError
from fastflight.gateway.relay.outgoing import Buffers, unpaced
from fastflight.gateway.relay.targets import AllowedTargets, Asker, Endpoint
from fastflight.gateway.relay.timing import Timing
from fastflight.gateway.relay.wire import RelayOutput
from fastflight.protocol.relay import HEADER_BYTES, Reason, RelayConnection

# How long it may take to resolve a name and connect to the first address that answers. A board that wakes up takes a
# second or two.
CONNECT_SECONDS = 10.0
# The system's receive buffer for a target, since targets are read in turns: two reads.
RECEIVE_BUFFER_BYTES = 256 * 1024
# Bytes that one stream reads before other streams have their turn. For small reads, the turn is most of the cost.
TURN_BYTES = 256 * 1024
# The first byte of a WebSocket frame that holds a complete binary message (RFC 6455, 5.2).
_BINARY = 0x80 | Opcode.BINARY


class Client(Protocol):
    """The part of `RelayClient` that a stream uses."""

    connection: RelayConnection
    outgoing: RelayOutput
    buffers: Buffers

    @property
    def has_room(self) -> bool:
        """Whether more may be queued for the client."""

    def wants_room(self, stream: RelayStream) -> None:
        """Call `stream.look` once there is room."""

    def send(self, frame: bytes) -> None:
        """Send a frame of the relay, if it is not empty."""

    def over(self, stream: RelayStream) -> None:
        """Remove `stream`. It has ended, and the client has been told so."""


class RelayStream:
    """Stream `number` of `client`. Call `start`, then `feed`, `look` and `end` for the client's frames."""

    def __init__(self, client: Client, number: int, target: str, *, timing: bool) -> None:
        self.number = number
        self.target = target
        self._client = client
        self._timing = Timing(target, detailed=timing)
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._sock: socket.socket | None = None
        self._reading = False
        # Bytes that the target has not taken yet, and whether the client sends no more.
        self._unsent = bytearray()
        self._client_ended = False
        self._target_ended = False
        self._shut = False

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    def start(self, allowed: AllowedTargets, asker: Asker, timeout: float) -> None:
        """Connect for `asker`, then tell the client the result."""
        self._connecting = asyncio.ensure_future(self._connect(allowed, asker, timeout))

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the target, or let them wait."""
        if self._unsent:
            self._unsent += data
            return
        sent = self._send(data)
        if self._sock is not None and sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._sock, self._writable)

    def end(self) -> None:
        """Note that the client sends no more."""
        self._client_ended = True
        self._finish()

    def look(self) -> None:
        """Start to read the target. Call this when the client has given credit or has room."""
        if self._sock is not None and not self._reading and not self._target_ended:
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def look_again(self) -> None:
        """Read the target, if it is being read, even if the loop reports nothing: libuv does not report every reset."""
        if self._sock is not None and self._reading:
            self._readable()

    def abort(self, reason: str) -> None:
        """End at once, without telling the client."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._sock = None
            self._timing.over(reason)
        self._unsent.clear()

    def _close(self, reason: Reason, text: str = "") -> None:
        """End, and tell the client."""
        self.abort(reason.name.lower())
        self._client.send(self._client.connection.close(self.number, reason, text))
        self._client.over(self)

    async def _connect(self, allowed: AllowedTargets, asker: Asker, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                self._sock = await _connect_first(await allowed.resolve(self.target, asker))
        except TimeoutError:
            return self._close(Reason.TIMEOUT, f"{self.target}: no answer within {timeout:g} s")
        except RequestError as error:
            return self._close(Reason.REFUSED, str(error))
        except FastFlightError as error:
            return self._close(Reason.UNREACHABLE, str(error))
        except OSError as error:
            return self._close(Reason.UNREACHABLE, f"{self.target}: {_error_text(error)}")
        self._connecting = None
        self._client.send(self._client.connection.opened(self.number))
        self.look()

    def _readable(self) -> None:
        """Read until the target has no more, or `TURN_BYTES` are read and other streams have their turn."""
        left = TURN_BYTES
        while left > 0 and self._sock is not None and (size := self._read()):
            left -= size

    def _read(self) -> int:
        """Read once and send it to the client; return its size, or 0 if there is no more to read now."""
        client, sock = self._client, self._sock
        assert sock is not None
        limit = min(client.buffers.size, client.connection.credit(self.number))
        if not limit or not client.has_room:
            self._loop.remove_reader(sock)
            self._reading = False
            if limit:
                client.wants_room(self)
            return 0
        start = time.perf_counter_ns()
        buffer = client.buffers.take()
        try:
            size = sock.recv_into(buffer, limit)
        except (BlockingIOError, InterruptedError):
            client.buffers.give(buffer)
            return 0
        except OSError as error:
            client.buffers.give(buffer)
            self._close(Reason.RESET, f"{self.target}: {_error_text(error)}")
            return 0
        if not size:
            client.buffers.give(buffer)
            self._loop.remove_reader(sock)
            self._reading, self._target_ended = False, True
            client.send(client.connection.end(self.number))
            self._finish()
            return 0
        read = time.perf_counter_ns()
        view = memoryview(buffer)[:size]
        head = _websocket_header(HEADER_BYTES + size) + client.connection.data(self.number, size)
        packed = time.perf_counter_ns()
        client.outgoing.send(head, view, buffer)
        self._timing.read(size)
        if self._timing.detailed:
            self._timing.detail(start, read, packed, time.perf_counter_ns(), size)
        return size if size == limit else 0

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Send `data` to the target; return how much the system took. If the target is gone, end the stream."""
        assert self._sock is not None
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._close(Reason.RESET, f"{self.target}: {_error_text(error)}")
            return 0
        self._timing.sent += sent
        self._client.send(self._client.connection.consumed(self.number, sent))
        return sent

    def _writable(self) -> None:
        sent = self._send(self._unsent)
        del self._unsent[:sent]
        if not self._unsent and self._sock is not None:
            self._loop.remove_writer(self._sock)
            self._finish()

    def _finish(self) -> None:
        """Close the sending side once the target has all the client's bytes; close the stream when both have ended."""
        if self._client_ended and not self._unsent and not self._shut and self._sock is not None:
            self._shut = True
            with contextlib.suppress(OSError):  # the target has reset the connection: the next read reports it
                self._sock.shutdown(socket.SHUT_WR)
        if self._shut and self._target_ended:
            self._close(Reason.DONE)


def _websocket_header(size: int) -> bytes:
    """Return the header of an unmasked binary WebSocket frame of `size` bytes (RFC 6455, 5.2).

    The `websockets` library would copy header and payload into one buffer; here the payload is sent without a copy.
    """
    if size < 126:
        return bytes((_BINARY, size))
    if size < 1 << 16:
        return struct.pack("!BBH", _BINARY, 126, size)
    return struct.pack("!BBQ", _BINARY, 127, size)


async def _connect_first(endpoints: list[Endpoint]) -> socket.socket:
    """Connect to the first endpoint that answers; return the socket, or raise the error of the last one."""
    loop = asyncio.get_running_loop()
    failure = OSError("no address")
    for endpoint in endpoints:
        sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, endpoint.address)
            unpaced(sock)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _error_text(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "cannot be reached"
