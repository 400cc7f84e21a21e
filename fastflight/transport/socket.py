"""`socket://host:port`: a raw TCP stream to a device, such as a bridge, an emulator or a simulated board.

`?baud=115200` says what the serial line behind it carries. Nothing is set by it; senders pace themselves by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.port import READ_BYTES, LineSettings
from fastflight.transport.watch import Watch, is_timeout

# A host that vanished is noticed after a minute: half of it silent, the rest asking. Systems spell the first of these
# in two ways; what one does not have is left out.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
# The same for a host that vanished with data on its way to it, in milliseconds (Linux).
USER_TIMEOUT_MS = 60_000
# A peer that makes progress takes this much within a write's deadline, on any line worth using.
WRITE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """A TCP endpoint, with the speed of the serial line behind it where that is known."""

    url: str
    host: str
    port: int
    baud: int | None = None

    def open(self, timeout: float) -> SocketPort:
        with self._told(timeout):
            stream = socket.create_connection((self.host, self.port), timeout)
        return self._connected(stream)

    async def aopen(self, timeout: float) -> SocketPort:
        with self._told(timeout):
            async with asyncio.timeout(timeout):
                stream = await _aconnected(self.host, self.port)
        return self._connected(stream)

    def dispose(self) -> None:
        """An address on the network holds nothing here."""

    def _connected(self, stream: socket.socket) -> SocketPort:
        speed = None if self.baud is None else LineSettings(self.baud).bytes_per_second
        return SocketPort(stream, self.url, bytes_per_second=speed)

    @contextlib.contextmanager
    def _told(self, timeout: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise TransportTimeout(
                f"nothing answered within {timeout:g} s", where=self.url, hint="Check the host and that it is reachable"
            ) from error
        except OSError as error:
            raise TransportError(
                f"cannot connect ({error.strerror or error})",
                where=self.url,
                hint="Check the address, and that the bridge or emulator is running",
            ) from error


async def _aconnected(host: str, port: int) -> socket.socket:
    """A connection to the first of the host's addresses that takes one."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    for family, address in await _addresses(host, port):
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.setblocking(False)
            await loop.sock_connect(stream, address)
        except OSError as error:
            stream.close()
            # The loop has a text of its own.
            failure = OSError(error.errno, os.strerror(error.errno or 0))
        except BaseException:
            stream.close()
            raise
        else:
            return stream
    raise failure


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Family and address of each. A number is not looked up: that would take a thread."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, (host, port))]


def tune(stream: socket.socket) -> None:
    """Send small pieces at once, and notice a peer that vanished.

    Some systems refuse all of it on a connection that was reset meanwhile, whose end is then told as any other's.
    """
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_NODELAY", 1), *KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        if option := getattr(socket, name, None):
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


class SocketPort:
    """A connected stream socket. `release` runs after it was closed, and may take its time."""

    def __init__(
        self,
        stream: socket.socket,
        where: str,
        release: Callable[[], None] | None = None,
        *,
        bytes_per_second: float | None = None,
    ) -> None:
        """`bytes_per_second`: what the device behind it carries, where that is known."""
        # Acknowledgements are a few bytes each and decide the speed: never wait to fill a segment.
        tune(stream)
        self._stream = stream
        self._where = where
        self._release = release
        self._bytes_per_second = bytes_per_second
        self._written = 0
        self._watch = Watch(stream.fileno(), self._take)

    @property
    def written(self) -> int:
        """Bytes that the system took so far. Tells after a write that failed how far it came."""
        return self._written

    @property
    def bytes_per_second(self) -> float | None:
        return self._bytes_per_second

    def read(self, timeout: float) -> bytes:
        try:
            self._stream.settimeout(timeout)
            unread = self._watch.unread()
            return self._received(self._take() if unread is None else unread)
        except OSError as error:
            raise self._translated(error, "sent nothing", timeout) from error

    def write(self, data: bytes, timeout: float) -> None:
        try:
            self._stream.settimeout(timeout)
            rest = memoryview(data)
            while rest:
                rest = rest[self._sent(self._stream.send(rest[:WRITE_BYTES])) :]
        except OSError as error:
            raise self._translated(error, "took no byte", timeout) from error

    def close(self) -> None:
        self._end()
        if self._release is not None:
            self._release()

    async def aread(self, timeout: float) -> bytes:
        try:
            self._do_not_block()
            return self._received(await self._watch.read(timeout))
        except OSError as error:
            raise self._translated(error, "sent nothing", timeout) from error

    async def apour(self, give: Callable[[bytes], object]) -> None:
        try:
            self._do_not_block()
            ended = await self._watch.pour(give)
        except OSError as error:
            raise self._translated(error, "sent nothing", 0) from error
        if ended:
            self._received(b"")

    async def awrite(self, data: bytes, timeout: float) -> None:
        try:
            self._do_not_block()
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._sent(self._stream.send(rest[:WRITE_BYTES])) :]
                except BlockingIOError:
                    await self._watch.room(timeout)
        except OSError as error:
            raise self._translated(error, "took no byte", timeout) from error

    async def aclose(self) -> None:
        self._end()
        if self._release is not None:
            await unbroken(off_loop(self._release))

    def _end(self) -> None:
        # Wakes a thread that waits in recv; closing alone would not.
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._watch.close()
        self._stream.close()

    def _do_not_block(self) -> None:
        # Setting it is a call of the system, so only after a thread had the port.
        if self._stream.gettimeout() != 0:
            self._stream.setblocking(False)

    def _take(self) -> bytes:
        return self._stream.recv(READ_BYTES)

    def _sent(self, count: int) -> int:
        self._written += count
        return count

    def _received(self, data: bytes) -> bytes:
        if not data:
            raise TransportClosed("the device closed the line", where=self._where, hint="Plug it in or start it again")
        return data

    def _translated(self, error: OSError, what: str, timeout: float) -> TransportError:
        if is_timeout(error):
            return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)
        return TransportClosed(
            f"the connection was lost ({error.strerror or error})",
            where=self._where,
            hint="Plug it in or start it again",
        )
