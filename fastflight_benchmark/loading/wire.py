"""A minimal client for a null device, so that a measurement shows the bridge and not the client.

With an RFC 2217 server, the client negotiates Telnet's options first. After that, the wire carries only the content
with each 0xFF doubled. The client encodes the content before the measured time, and compares it afterwards.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import time
import tty
from types import TracebackType
from typing import Self

from fastflight.errors import DataError, TransportClosed, TransportTimeout
from fastflight_benchmark.peers.bridges import RFC2217, Endpoint
from fastflight_benchmark.peers.null_device import READ_BYTES, READY, allocated, content

IAC, WILL, DO = b"\xff", b"\xfb", b"\xfd"
BINARY, SUPPRESS_GO_AHEAD, COM_PORT = b"\x00", b"\x03", b"\x2c"
# The client offers these options: binary in both directions, and control of the serial line.
OPTIONS = b"".join(
    IAC + verb + option for verb, option in ((WILL, COM_PORT), (WILL, BINARY), (DO, BINARY), (DO, SUPPRESS_GO_AHEAD))
)
TIMEOUT_SECONDS = 60.0


class Wire:
    """An open line to a terminal or over TCP. `port` says whether the server uses RFC 2217."""

    def __init__(self, descriptor: int, port: str) -> None:
        os.set_blocking(descriptor, True)
        self._descriptor = descriptor
        self._telnet = port == RFC2217

    @classmethod
    def to_terminal(cls, path: str) -> Self:
        """Open the device's terminal directly."""
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(descriptor)
        return cls(descriptor, "").ready()

    @classmethod
    def to(cls, endpoint: Endpoint, port: str) -> Self:
        """Connect to a device's socket, or to a server in front of it."""
        stream = socket.create_connection(endpoint, TIMEOUT_SECONDS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(stream.detach(), port).ready()

    def ready(self) -> Self:
        """Negotiate with the server, and wait until the device answers."""
        self.send((OPTIONS if self._telnet else b"") + b"hello\n")
        self._until_ready()
        return self

    def encoded(self, data: bytes) -> bytes:
        """Return `data` as this wire carries it."""
        return data.replace(IAC, IAC + IAC) if self._telnet else data

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

    def take(self, kind: str, count: int) -> float:
        """Send content to the device and return the seconds. Raise `DataError` if it received other bytes."""
        data = content(kind, count)
        encoded = self.encoded(data)
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

    def give(self, kind: str, count: int) -> float:
        """Receive content from the device and return the seconds. Raise `DataError` if other bytes arrived."""
        expected = self.encoded(content(kind, count))
        found = allocated(len(expected))
        self.send(f"give {count} {kind}\n".encode())
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
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest[:READ_BYTES]) :]

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _fill(self, space: bytearray) -> None:
        with memoryview(space) as rest:
            at = 0
            while at < len(space):
                self._wait()
                got = os.readv(self._descriptor, [rest[at : at + READ_BYTES]])
                if not got:
                    raise TransportClosed("the line was closed")
                at += got

    def _until_ready(self) -> None:
        """Read until the device says `ready`. The bytes before it are answers of a Telnet server."""
        seen = b""
        while not seen.endswith(READY):
            self._wait()
            data = os.read(self._descriptor, READ_BYTES)
            if not data:
                raise TransportClosed("the line was closed")
            seen += data

    def _wait(self) -> None:
        if not select.select([self._descriptor], [], [], TIMEOUT_SECONDS)[0]:
            raise TransportTimeout(f"nothing arrived for {TIMEOUT_SECONDS:g} s")
