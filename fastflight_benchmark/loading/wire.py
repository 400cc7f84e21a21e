"""Minimal clients of a null device, so that a measurement shows what is in between and not the client.

`Wire` is a terminal or a TCP connection. With an RFC 2217 server, it negotiates Telnet's options first; after that, the
line carries only the content, with each 0xFF doubled. `WebSocketWire` is a TCP connection through a relay: a system
call for the head of each frame, one or more for its payload, no copies.

Content is encoded before the measured time, and compared afterwards.
"""

from __future__ import annotations

import base64
import hashlib
import os
import select
import socket
import time
import tty
from types import TracebackType
from typing import Self

from websockets.frames import Frame, Opcode

from fastflight.errors import DataError, TransportClosed, TransportTimeout
from fastflight_benchmark.peers.null_device import READ_BYTES, READY, allocated, content, send

IAC, WILL, DO = b"\xff", b"\xfb", b"\xfd"
BINARY, SUPPRESS_GO_AHEAD, COM_PORT = b"\x00", b"\x03", b"\x2c"
# The client offers these options: binary in both directions, and control of the serial line.
OPTIONS = b"".join(
    IAC + verb + option for verb, option in ((WILL, COM_PORT), (WILL, BINARY), (DO, BINARY), (DO, SUPPRESS_GO_AHEAD))
)
TIMEOUT_SECONDS = 60.0


class Wire:
    """An open line to a null device. It reads at most `most` bytes at once."""

    def __init__(self, descriptor: int, *, telnet: bool = False, most: int = READ_BYTES) -> None:
        os.set_blocking(descriptor, True)
        self._descriptor = descriptor
        self._telnet = telnet
        self._most = most

    @classmethod
    def to(cls, device: str, *, telnet: bool = False, most: int = READ_BYTES) -> Self:
        """Open a terminal (its path), or connect to `host:port`: a device's socket, or a server in front of it."""
        if device.startswith("/"):
            descriptor = os.open(device, os.O_RDWR | os.O_NOCTTY)
            tty.setraw(descriptor)
        else:
            descriptor = connected(device).detach()
        return cls(descriptor, telnet=telnet, most=most).ready()

    def ready(self) -> Self:
        """Negotiate with the server, and wait until the device answers."""
        self.send((OPTIONS if self._telnet else b"") + b"hello\n")
        self._until_ready()
        return self

    def round_trip(self) -> float:
        """Return the seconds until a byte comes back. Call `echo` first.

        Raise `DataError` if another byte, or none because the line was closed, comes back.
        """
        began = time.perf_counter()
        os.write(self._descriptor, b"x")
        received = os.read(self._descriptor, 1)
        seconds = time.perf_counter() - began
        if received != b"x":
            raise DataError(f"{received!r} came back, and not what was sent")
        return seconds

    def echo(self, count: int) -> None:
        """Tell the device to send the next `count` bytes back."""
        self.send(f"echo {count}\n".encode())

    def upload(self, kind: str, count: int) -> float:
        """Send content to the device and return the seconds. Raise `DataError` if it received other bytes."""
        data = content(kind, count)
        encoded = self._encoded(data)
        self.send(f"take {count}\n".encode())
        self._until_ready()
        began = time.perf_counter()
        self.send(encoded)
        self._fill(bytearray(1))
        seconds = time.perf_counter() - began
        self._fill(digest := bytearray(65))
        if digest.decode(errors="replace").strip() != hashlib.sha256(data).hexdigest():
            raise DataError("what the device got is not what was sent")
        return seconds

    def download(self, kind: str, count: int, chunk: int = READ_BYTES) -> float:
        """Receive content that the device writes in chunks, and return the seconds. `DataError` if bytes differ."""
        expected = self._encoded(content(kind, count))
        found = allocated(len(expected))
        self.send(f"give {count} {kind} {chunk}\n".encode())
        self._until_ready()
        began = time.perf_counter()
        self.send(b"go\n")
        self._fill(found)
        seconds = time.perf_counter() - began
        if found != expected:
            raise DataError("the received bytes are not what the device sent")
        return seconds

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        send(self._descriptor, data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _encoded(self, data: bytes) -> bytes:
        """Return `data` as this wire carries it."""
        return data.replace(IAC, IAC + IAC) if self._telnet else data

    def _fill(self, space: bytearray) -> None:
        with memoryview(space) as rest:
            at = 0
            while at < len(space):
                at += self._receive(rest[at:])

    def _until_ready(self) -> None:
        """Read until the device says `ready`. The bytes before it are answers of a Telnet server."""
        seen, space = b"", bytearray(READ_BYTES)
        while not seen.endswith(READY):
            seen += space[: self._receive(memoryview(space))]

    def _receive(self, space: memoryview) -> int:
        """Receive the next bytes of the device. Return their number."""
        return self._read(space)

    def _read(self, space: memoryview) -> int:
        if not select.select([self._descriptor], [], [], TIMEOUT_SECONDS)[0]:
            raise TransportTimeout(f"nothing arrived for {TIMEOUT_SECONDS:g} s")
        received = os.readv(self._descriptor, [space[: self._most]])
        if not received:
            raise TransportClosed("the line was closed")
        return received


class WebSocketWire(Wire):
    """A line through a relay, each of whose frames has bytes of the device."""

    _payload = 0

    @classmethod
    def through(cls, relay: str, path: str, *, first: str = "") -> Self:
        """Open the WebSocket `path` of the relay at `host:port`. A message `first`, if any, names the device."""
        sock = connected(relay)
        _shake_hands(sock, relay, path)
        wire = cls(sock.detach())
        if first:
            send(wire._descriptor, Frame(Opcode.TEXT, first.encode()).serialize(mask=True))
        return wire.ready()

    def send(self, data: bytes) -> None:
        send(self._descriptor, Frame(Opcode.BINARY, data).serialize(mask=True))

    def _receive(self, space: memoryview) -> int:
        if not self._payload:
            self._payload = self._next_frame()
        received = self._read(space[: self._payload])
        self._payload -= received
        return received

    def _next_frame(self) -> int:
        """Read the head of a frame. Return the length of its payload."""
        opcode, length = self._exactly(2)
        if length >= 126:
            length = int.from_bytes(self._exactly(2 if length == 126 else 8), "big")
        if opcode != 0x80 | Opcode.BINARY:
            raise TransportClosed("the relay ended the connection")
        return length

    def _exactly(self, count: int) -> bytearray:
        space, at = bytearray(count), 0
        while at < count:
            at += self._read(memoryview(space)[at:])
        return space


def connected(address: str) -> socket.socket:
    """Connect to `host:port`."""
    host, _, port = address.rpartition(":")
    stream = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _shake_hands(sock: socket.socket, address: str, path: str) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        received = sock.recv(1)
        if not received:
            break
        head += received
    if not head.startswith(b"HTTP/1.1 101 "):
        raise TransportClosed(f"no WebSocket: {head[:100]!r}")
