"""`socket://host:port`: a raw TCP stream to a device, such as a bridge, an emulator or a simulated board.

`?baud=115200` tells the speed of the serial line behind it. It sets nothing: transfers choose time limits and
compression by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import url_parts
from fastflight.transport.loop_port import Port
from fastflight.transport.port import LineSettings, StatelessAddress

P = TypeVar("P", bound=Port)

# A vanished host is noticed after a minute: 30 s of silence, then three probes, 10 s apart. Systems have one of two
# names for the first option; options that a system does not have are left out.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPALIVE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
# The same limit for a host that vanishes while data is on its way to it, in milliseconds (Linux).
USER_TIMEOUT_MS = 60_000
# The options of a URL, all of which are public.
OPTIONS = SHOWN = ("baud",)


@dataclass(frozen=True, slots=True)
class SocketAddress(StatelessAddress):
    """A TCP endpoint. `baud` is the speed of the serial line behind it, if known."""

    url: str
    host: str
    port: int
    baud: int | None = None

    async def aopen(self, timeout: float) -> SocketPort:
        speed = None if self.baud is None else LineSettings(self.baud).bytes_per_second
        return await self.aconnect(lambda: SocketPort(self.url, bytes_per_second=speed), timeout)

    async def aconnect(self, make: Callable[[], P], timeout: float, **options: Any) -> P:
        """Connect, with the protocol that `make` returns. `options` are those of `loop.create_connection`."""
        with self._translating_errors(timeout):
            async with asyncio.timeout(timeout):
                loop = asyncio.get_running_loop()
                return (await loop.create_connection(make, self.host, self.port, **options))[1]

    @contextlib.contextmanager
    def _translating_errors(self, timeout: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise TransportTimeout(
                f"nothing answered within {timeout:g} s", where=self.url, hint="Check the host and that it is reachable"
            ) from error
        except OSError as error:
            # The text of the system, not that of the event loop. A name that is not known has a number below 0.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or error
            raise TransportError(
                f"cannot connect ({reason})",
                where=self.url,
                hint="Check the address, and that the bridge or emulator is running",
            ) from error


def tune(stream: Any) -> None:
    """Set the options of a connection: send small pieces at once, and notice a vanished peer.

    `stream` is a socket, or what an asyncio transport has for it. Errors are ignored: some systems refuse these options
    on a connection that was reset meanwhile, and the next read or write reports that.
    """
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_NODELAY", 1), *KEEPALIVE, ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        if option := getattr(socket, name, None):
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


class SocketPort(Port):
    """A `Port` on a connected stream socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Answers of a few bytes decide the speed of transfers, so TCP must never wait to fill a segment.
        tune(transport.get_extra_info("socket"))
        super().connection_made(transport)


def parse(url: str, rest: str) -> SocketAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    host, port = url_parts.endpoint(url, rest)
    return SocketAddress(url, host, port, url_parts.baud(url, dict(url_parts.options(url, rest, OPTIONS))))
