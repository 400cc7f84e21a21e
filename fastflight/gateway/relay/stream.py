"""One relayed stream: a TCP connection to a target, and its place on a client's connection.

Bytes of the target are read into a lent buffer, as many as the client has given credit for, and handed on where they
lie; while the client has no credit or no room, the target is not read. Bytes of the client go to the target at once, or
wait here within the window; credit for them is given back when the system has taken them. No task and no thread while
the stream lives, but for connecting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol

from websockets.frames import Opcode

from fastflight.errors import FastFlightError, RequestError
from fastflight.gateway.relay.outgoing import Buffers, unpaced
from fastflight.gateway.relay.targets import AllowedTargets, Asker, Endpoint
from fastflight.gateway.relay.timing import Timing
from fastflight.gateway.relay.wire import RelayOutput
from fastflight.protocol.relay import HEADER_BYTES, Reason, RelayConnection
from fastflight.transport.tap import Tap

# To resolve a name and connect to its first address that answers. A board that wakes takes a second or two.
CONNECT_SECONDS = 10.0
# What the system holds of a target that is read in turns: two reads.
RECEIVE_BUFFER_BYTES = 256 * 1024
# What one stream reads before the loop turns to the others: for small reads, most of their cost is that turn.
TURN_BYTES = 256 * 1024
# The first byte of a WebSocket frame that is a whole binary message (RFC 6455, 5.2).
_BINARY = 0x80 | Opcode.BINARY


# The tap of a device of this server, by its name, if it is to see what is relayed to it.
Taps = Callable[[str], Tap | None]


class Client(Protocol):
    """What a stream sees of the connection that it is on."""

    connection: RelayConnection
    outgoing: RelayOutput
    buffers: Buffers

    @property
    def has_room(self) -> bool:
        """More may be queued for it."""

    def wants_room(self, stream: RelayStream) -> None:
        """Call `stream.look` once there is room."""

    def send(self, frame: bytes) -> None:
        """Send a frame of the relay; nothing where it is empty."""

    def over(self, stream: RelayStream) -> None:
        """`stream` has ended, and has said so."""


class RelayStream:
    """Stream `number` of `client`. `start` it; the client feeds it, and it takes care of the rest."""

    def __init__(self, client: Client, number: int, target: str, taps: Taps, *, timing: bool) -> None:
        self.number = number
        self.target = target
        self._client = client
        self._taps = taps
        self._tap: Tap | None = None
        self._timing = Timing(target, detailed=timing)
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._sock: socket.socket | None = None
        self._reading = False
        # What the target has not taken, and whether the client sends no more.
        self._unsent = bytearray()
        self._client_ended = False
        self._target_ended = False
        self._shut = False

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    def start(self, allowed: AllowedTargets, asker: Asker, timeout: float) -> None:
        """Connect for `asker`, then tell the client how that went."""
        self._connecting = asyncio.ensure_future(self._connect(allowed, asker, timeout))

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes for the target."""
        if self._tap is not None:
            self._tap.feed("tx", bytes(data))
        if self._unsent:
            self._unsent += data
            return
        sent = self._send(data)
        if self._sock is not None and sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(self._sock, self._writable)

    def end(self) -> None:
        """The client sends no more."""
        self._client_ended = True
        self._finish()

    def look(self) -> None:
        """There is credit, or room: read the target."""
        if self._sock is not None and not self._reading and not self._target_ended:
            self._reading = True
            self._loop.add_reader(self._sock, self._readable)

    def look_again(self) -> None:
        """Read a target that is listened to, whatever the loop has told: libuv does not tell of each reset."""
        if self._sock is not None and self._reading:
            self._readable()

    def abort(self, reason: str) -> None:
        """End at once; the client knows, or is gone."""
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
                self._sock, endpoint = await _connected(await allowed.resolve(self.target, asker))
        except TimeoutError:
            return self._close(Reason.TIMEOUT, f"{self.target}: no answer within {timeout:g} s")
        except RequestError as error:
            return self._close(Reason.REFUSED, str(error))
        except FastFlightError as error:
            return self._close(Reason.UNREACHABLE, str(error))
        except OSError as error:
            return self._close(Reason.UNREACHABLE, f"{self.target}: {_said(error)}")
        self._connecting = None
        self._tap = self._taps(endpoint.device) if endpoint.device else None
        if self._tap is not None:
            self._tap.begin_line("another stream was opened")
        self._client.send(self._client.connection.opened(self.number))
        self.look()

    def _readable(self) -> None:
        """Read while there is more than one read of the target, and then let others have their turn."""
        left = TURN_BYTES
        while left > 0 and self._sock is not None and (size := self._read()):
            left -= size

    def _read(self) -> int:
        """Read once and hand it on; how much that was, 0 where there is no more to read now."""
        client, sock = self._client, self._sock
        assert sock is not None
        most = min(client.buffers.size, client.connection.credit(self.number))
        if not most or not client.has_room:
            self._loop.remove_reader(sock)
            self._reading = False
            if most:
                client.wants_room(self)
            return 0
        start = time.perf_counter_ns()
        buffer = client.buffers.take()
        try:
            size = sock.recv_into(buffer, most)
        except (BlockingIOError, InterruptedError):
            client.buffers.give(buffer)
            return 0
        except OSError as error:
            client.buffers.give(buffer)
            self._close(Reason.RESET, f"{self.target}: {_said(error)}")
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
        if self._tap is not None:
            self._tap.feed("rx", bytes(view))
        head = _websocket_header(HEADER_BYTES + size) + client.connection.data(self.number, size)
        packed = time.perf_counter_ns()
        client.outgoing.send(head, view, buffer)
        self._timing.read(size)
        if self._timing.detailed:
            self._timing.detail(start, read, packed, time.perf_counter_ns(), size)
        return size if size == most else 0

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Hand `data` to the system; how much it took. Where the target is gone, the stream ends."""
        assert self._sock is not None
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._close(Reason.RESET, f"{self.target}: {_said(error)}")
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
        """Pass on the client's end when the target has all; close when both have ended."""
        if self._client_ended and not self._unsent and not self._shut and self._sock is not None:
            self._shut = True
            with contextlib.suppress(OSError):  # reset meanwhile: the next read says so
                self._sock.shutdown(socket.SHUT_WR)
        if self._shut and self._target_ended:
            self._close(Reason.DONE)


def _websocket_header(size: int) -> bytes:
    """The header of a binary WebSocket frame of `size` bytes, not masked (RFC 6455, 5.2).

    The `websockets` library copies header and payload into one; here the payload goes out from where it was read.
    """
    if size < 126:
        return bytes((_BINARY, size))
    if size < 1 << 16:
        return struct.pack("!BBH", _BINARY, 126, size)
    return struct.pack("!BBQ", _BINARY, 127, size)


async def _connected(endpoints: list[Endpoint]) -> tuple[socket.socket, Endpoint]:
    """A connection to the first that answers, and which that is; else what the last one said."""
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
            return sock, endpoint
    raise failure


def _said(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "cannot be reached"
