"""The bare end of a line to a null device: as little code as possible, so that what lies between is what is measured.

Through an RFC 2217 server, Telnet's options are agreed on first; afterwards the wire carries the content with each
0xFF doubled and nothing else, which is made before and compared after the clock runs.
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
from fastflight_benchmark.suites.bridge.device import READ_BYTES, READY, content, room
from fastflight_benchmark.suites.bridge.servers import RFC2217, Endpoint

IAC, WILL, DO = b"\xff", b"\xfb", b"\xfd"
BINARY, SUPPRESS_GO_AHEAD, COM_PORT = b"\x00", b"\x03", b"\x2c"
# Both sides take bytes as they are, and the client may set the serial line.
AGREEMENT = b"".join(
    IAC + verb + option for verb, option in ((WILL, COM_PORT), (WILL, BINARY), (DO, BINARY), (DO, SUPPRESS_GO_AHEAD))
)
PATIENCE = 60.0


class Wire:
    """An open line, by a terminal's path or over TCP; `port` says what the server speaks."""

    def __init__(self, descriptor: int, port: str) -> None:
        os.set_blocking(descriptor, True)
        self._descriptor = descriptor
        self._telnet = port == RFC2217

    @classmethod
    def to_terminal(cls, path: str) -> Self:
        """The device itself."""
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(descriptor)
        return cls(descriptor, "").ready()

    @classmethod
    def to(cls, endpoint: Endpoint, port: str) -> Self:
        """A device's socket, or a server in front of it."""
        stream = socket.create_connection(endpoint, PATIENCE)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(stream.detach(), port).ready()

    def ready(self) -> Self:
        """Agree with the server, and find the device listening."""
        self.send((AGREEMENT if self._telnet else b"") + b"hello\n")
        self._until_ready()
        return self

    def encoded(self, data: bytes) -> bytes:
        """As it crosses this wire."""
        return data.replace(IAC, IAC + IAC) if self._telnet else data

    def round_trip(self) -> float:
        """Seconds that a byte takes there and back, once the device was asked to `echo`.

        `DataError` where it is not that byte that came: nothing, where the line was closed, comes at once.
        """
        began = time.perf_counter()
        os.write(self._descriptor, b"x")
        came = os.read(self._descriptor, 1)
        seconds = time.perf_counter() - began
        if came != b"x":
            raise DataError(f"{came!r} came back, and not what was sent")
        return seconds

    def echo(self, count: int) -> None:
        """The next bytes come back."""
        self.send(f"echo {count}\n".encode())

    def take(self, kind: str, count: int) -> float:
        """Let the device take content: seconds. `DataError` where it has other bytes than were sent."""
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
        """Take content from the device: seconds. `DataError` where other bytes came."""
        expected = self.encoded(content(kind, count))
        found = room(len(expected))
        self.send(f"give {count} {kind}\n".encode())
        self._until_ready()
        began = time.perf_counter()
        self.send(b"go\n")
        self._fill(found)
        seconds = time.perf_counter() - began
        if found != expected:
            raise DataError("what came is not what the device sent")
        return seconds

    def send(self, data: bytes) -> None:
        """All of `data`."""
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
        """What stands before it are answers of a Telnet server."""
        seen = b""
        while not seen.endswith(READY):
            self._wait()
            data = os.read(self._descriptor, READ_BYTES)
            if not data:
                raise TransportClosed("the line was closed")
            seen += data

    def _wait(self) -> None:
        if not select.select([self._descriptor], [], [], PATIENCE)[0]:
            raise TransportTimeout(f"nothing came for {PATIENCE:g} s")
