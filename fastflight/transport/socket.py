"""`socket://host:port`: a raw TCP stream to a device, such as a bridge, an emulator or a simulated board.

`?baud=115200` tells the speed of the serial line behind it. It sets nothing: transfers choose time limits and
compression by it.
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
from fastflight.transport import url_parts
from fastflight.transport.port import READ_BYTES, LineSettings
from fastflight.transport.watch import Watch, is_timeout

# A vanished host is noticed after a minute: 30 s of silence, then three probes, 10 s apart. Systems have one of two
# names for the first option; options that a system does not have are left out.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
# The same limit for a host that vanishes while data is on its way to it, in milliseconds (Linux).
USER_TIMEOUT_MS = 60_000
# The most that one call sends: on any usable line, a working peer accepts this much within the timeout of a write.
WRITE_BYTES = 64 * 1024
# The options of a URL, all of which are public.
OPTIONS = SHOWN = ("baud",)


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """A TCP endpoint. `baud` is the speed of the serial line behind it, if known."""

    url: str
    host: str
    port: int
    baud: int | None = None

    def open(self, timeout: float) -> SocketPort:
        with self._translating_errors(timeout):
            stream = socket.create_connection((self.host, self.port), timeout)
        return self._make_port(stream)

    async def aopen(self, timeout: float) -> SocketPort:
        with self._translating_errors(timeout):
            async with asyncio.timeout(timeout):
                stream = await _aconnect(self.host, self.port)
        return self._make_port(stream)

    def dispose(self) -> None:
        """Do nothing: a network address holds nothing on this host."""

    def _make_port(self, stream: socket.socket) -> SocketPort:
        speed = None if self.baud is None else LineSettings(self.baud).bytes_per_second
        return SocketPort(stream, self.url, bytes_per_second=speed)

    @contextlib.contextmanager
    def _translating_errors(self, timeout: float) -> Iterator[None]:
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


async def _aconnect(host: str, port: int) -> socket.socket:
    """Connect to the first of the host's addresses that accepts a connection."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    for family, address in await _addresses(host, port):
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.setblocking(False)
            await loop.sock_connect(stream, address)
        except OSError as error:
            stream.close()
            # Use the system's text for the error, not that of the event loop.
            failure = OSError(error.errno, os.strerror(error.errno or 0))
        except BaseException:
            stream.close()
            raise
        else:
            return stream
    raise failure


async def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Return the family and address of each of the host's addresses. A numeric host is not looked up in a thread."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET6 if literal.version == 6 else socket.AF_INET, (host, port))]


def tune(stream: socket.socket) -> None:
    """Set the options of a connection: send small pieces at once, and notice a vanished peer.

    Errors are ignored: some systems refuse these options on a connection that was reset meanwhile, and the next read or
    write reports that.
    """
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_NODELAY", 1), *KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        if option := getattr(socket, name, None):
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


class SocketPort:
    """A `Port` on a connected stream socket. `release` is called after the socket was closed, and may block."""

    def __init__(
        self,
        stream: socket.socket,
        where: str,
        release: Callable[[], None] | None = None,
        *,
        bytes_per_second: float | None = None,
    ) -> None:
        """`bytes_per_second` is the speed of the line behind the socket, None if not known."""
        # Answers of a few bytes decide the speed of transfers, so TCP must never wait to fill a segment.
        tune(stream)
        self._stream = stream
        self._where = where
        self._release = release
        self._bytes_per_second = bytes_per_second
        self._written = 0
        self._watch = Watch(stream.fileno(), self._take)

    @property
    def written(self) -> int:
        """How many bytes the system has accepted so far. After a failed write it shows how much was sent."""
        return self._written

    @property
    def bytes_per_second(self) -> float | None:
        return self._bytes_per_second

    def read(self, timeout: float) -> bytes:
        try:
            self._stream.settimeout(timeout)
            unread = self._watch.unread()
            return self._check_received(self._take() if unread is None else unread)
        except OSError as error:
            raise self._translate(error, "sent nothing", timeout) from error

    def write(self, data: bytes, timeout: float) -> None:
        try:
            self._stream.settimeout(timeout)
            rest = memoryview(data)
            while rest:
                rest = rest[self._count_written(self._stream.send(rest[:WRITE_BYTES])) :]
        except OSError as error:
            raise self._translate(error, "took no byte", timeout) from error

    def close(self) -> None:
        self._end()
        if self._release is not None:
            self._release()

    async def aread(self, timeout: float) -> bytes:
        try:
            self._set_non_blocking()
            return self._check_received(await self._watch.read(timeout))
        except OSError as error:
            raise self._translate(error, "sent nothing", timeout) from error

    async def apour(self, give: Callable[[bytes], object]) -> None:
        try:
            self._set_non_blocking()
            ended = await self._watch.pour(give)
        except OSError as error:
            raise self._translate(error, "sent nothing", 0) from error
        if ended:
            self._check_received(b"")

    async def awrite(self, data: bytes, timeout: float) -> None:
        try:
            self._set_non_blocking()
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[self._count_written(self._stream.send(rest[:WRITE_BYTES])) :]
                except BlockingIOError:
                    await self._watch.room(timeout)
        except OSError as error:
            raise self._translate(error, "took no byte", timeout) from error

    async def aclose(self) -> None:
        self._end()
        if self._release is not None:
            await unbroken(off_loop(self._release))

    def _end(self) -> None:
        # Wakes a thread that waits in `recv`, which closing alone does not.
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._watch.close()
        self._stream.close()

    def _set_non_blocking(self) -> None:
        # Setting this is a system call, needed only after a thread has used the port.
        if self._stream.gettimeout() != 0:
            self._stream.setblocking(False)

    def _take(self) -> bytes:
        return self._stream.recv(READ_BYTES)

    def _count_written(self, count: int) -> int:
        self._written += count
        return count

    def _check_received(self, data: bytes) -> bytes:
        if not data:
            raise TransportClosed("the device closed the line", where=self._where, hint="Plug it in or start it again")
        return data

    def _translate(self, error: OSError, what: str, timeout: float) -> TransportError:
        if is_timeout(error):
            return TransportTimeout(f"the device {what} for {timeout:g} s", where=self._where)
        return TransportClosed(
            f"the connection was lost ({error.strerror or error})",
            where=self._where,
            hint="Plug it in or start it again",
        )


def parse(url: str, rest: str) -> SocketAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    host, port = url_parts.endpoint(url, rest)
    return SocketAddress(url, host, port, url_parts.baud(url, dict(url_parts.options(url, rest, OPTIONS))))
