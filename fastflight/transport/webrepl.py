"""`ws://host:8266?password_file=FILE`: the WebREPL of a board in the network. `wss://` is one behind a TLS proxy.

The URL names where the password is: a file (`password_file`) or a variable of the environment (`password_env`). The
caller of `parse_url` reads it, and puts it into the address.

A board's WebREPL serves one client at a time, and closes at a soft reset on most boards.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastflight.errors import TransportClosed, TransportError
from fastflight.extras import needs
from fastflight.transport import url_parts
from fastflight.transport.framed import Deadline, FramedPort
from fastflight.transport.run import arun, run
from fastflight.transport.socket import SocketAddress, SocketPort

if TYPE_CHECKING:
    from fastflight.protocol.webrepl import WebReplClient

# The options of a URL that say where the password is.
PASSWORD_FILE, PASSWORD_ENV = OPTIONS = ("password_file", "password_env")
# None is public.
SHOWN = ()


@dataclass(frozen=True, slots=True)
class WebReplAddress:
    """The WebREPL of a board. One of `password_file` and `password_env` may name where the `password` is."""

    url: str
    host: str
    port: int
    tls: bool = False
    password_file: str | None = None
    password_env: str | None = None
    password: str = field(default="", repr=False)

    def open(self, timeout: float) -> WebReplPort:
        left, client = Deadline(timeout), self._client()
        port = WebReplPort(self._endpoint.open(timeout), client, self.url)
        with self._closing_on_failure(port):
            port.begin(self.password, left())
        return port

    async def aopen(self, timeout: float) -> WebReplPort:
        left, client = Deadline(timeout), self._client()
        port = WebReplPort(await self._endpoint.aopen(timeout), client, self.url)
        with self._closing_on_failure(port):
            await port.abegin(self.password, left())
        return port

    def unlocked(self, password: str) -> WebReplAddress:
        """Return the same address with its password."""
        return replace(self, password=password)

    def dispose(self) -> None:
        """Do nothing: a network address holds nothing on this host."""

    @property
    def _endpoint(self) -> SocketAddress:
        return SocketAddress(self.url, self.host, self.port)

    def _client(self) -> WebReplClient:
        if not self.password:
            hint = f"Put it into a file, and add ?{PASSWORD_FILE}=FILE to the URL"
            raise TransportError("its WebREPL needs a password", where=self.url, hint=hint)
        with needs("webrepl", "a board's WebREPL"):
            from fastflight.protocol.webrepl import WebReplClient
        return WebReplClient(self.url, self.host, self.port, ssl.create_default_context() if self.tls else None)

    @contextmanager
    def _closing_on_failure(self, port: WebReplPort) -> Iterator[None]:
        try:
            yield
        except TransportClosed as error:
            port.close()
            hint = "It serves one client at a time: close other WebREPL sessions, then try again"
            raise TransportError("its WebREPL closed the connection", where=self.url, hint=hint) from error
        except BaseException:
            port.close()
            raise


class WebReplPort(FramedPort):
    """The terminal of a board's WebREPL. `stream` is the connection. Call `begin` first."""

    def __init__(self, stream: SocketPort, client: WebReplClient, where: str) -> None:
        super().__init__(stream, client, where)
        self._client = client

    def begin(self, password: str, timeout: float) -> None:
        """Connect and log in within `timeout` seconds."""
        run(self._client.open(password, timeout), self._connection, timeout=timeout)

    async def abegin(self, password: str, timeout: float) -> None:
        """As `begin`."""
        await arun(self._client.open(password, timeout), self._connection, timeout=timeout)

    @property
    def bytes_per_second(self) -> float | None:
        return None

    def write(self, data: bytes, timeout: float) -> None:
        with self._within(timeout, "took no byte"):
            self._connection.send(lambda: self._client.encode(data), timeout)

    async def awrite(self, data: bytes, timeout: float) -> None:
        with self._within(timeout, "took no byte"):
            await self._connection.asend(lambda: self._client.encode(data), timeout)


def parse(url: str, rest: str) -> WebReplAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    host, port = url_parts.endpoint(url, rest)
    options = dict(url_parts.options(url, rest, OPTIONS))
    if "" in options.values() or len(options) > 1:
        raise url_parts.bad(url, f"one of {PASSWORD_FILE} and {PASSWORD_ENV} names where the password is")
    tls = url.startswith("wss:")
    return WebReplAddress(url, host, port, tls, options.get(PASSWORD_FILE), options.get(PASSWORD_ENV))
