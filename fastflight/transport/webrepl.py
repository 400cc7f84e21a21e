"""`ws://host:8266?password_file=FILE`: the WebREPL of a board in the network. `wss://` is one behind a TLS proxy.

The URL names where the password is: a file (`password_file`) or a variable of the environment (`password_env`). The
caller of `parse_url` reads it, and puts it into the address.

A board's WebREPL serves one client at a time, and closes at a soft reset on most boards.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastflight.errors import TransportClosed, TransportError
from fastflight.extras import needs
from fastflight.transport import url_parts
from fastflight.transport.framed import FramedPort
from fastflight.transport.port import StatelessAddress
from fastflight.transport.socket import SocketAddress

if TYPE_CHECKING:
    from fastflight.protocol.webrepl import WebReplClient

# The options of a URL that say where the password is.
PASSWORD_FILE, PASSWORD_ENV = OPTIONS = ("password_file", "password_env")
# None is public.
SHOWN = ()


@dataclass(frozen=True, slots=True)
class WebReplAddress(StatelessAddress):
    """The WebREPL of a board. One of `password_file` and `password_env` may name where the `password` is."""

    url: str
    host: str
    port: int
    tls: bool = False
    password_file: str | None = None
    password_env: str | None = None
    password: str = field(default="", repr=False)

    async def aopen(self, timeout: float) -> WebReplPort:
        end, client = asyncio.get_running_loop().time() + timeout, self._client()
        endpoint = SocketAddress(self.url, self.host, self.port)
        options = {"ssl": ssl.create_default_context(), "server_hostname": self.host} if self.tls else {}
        try:
            port = await endpoint.aconnect(lambda: WebReplPort(client, self.url), timeout, **options)
        except TransportError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise self._tls_error(error.__cause__) from error.__cause__
            raise
        try:
            await port.abegin(self.password, max(0.0, end - asyncio.get_running_loop().time()))
        except TransportClosed as error:
            await port.aclose()
            hint = "It serves one client at a time: close other WebREPL sessions, then try again"
            raise TransportError("its WebREPL closed the connection", where=self.url, hint=hint) from error
        except BaseException:
            await port.aclose()
            raise
        return port

    def unlocked(self, password: str) -> WebReplAddress:
        """Return the same address with its password."""
        return replace(self, password=password)

    def _client(self) -> WebReplClient:
        if not self.password:
            hint = f"Put it into a file, and add ?{PASSWORD_FILE}=FILE to the URL"
            raise TransportError("its WebREPL needs a password", where=self.url, hint=hint)
        with needs("webrepl", "a board's WebREPL"):
            from fastflight.protocol.webrepl import WebReplClient
        return WebReplClient(self.url, self.host, self.port, tls=self.tls)

    def _tls_error(self, error: ssl.SSLError) -> TransportError:
        reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
        hint = "Name the file of your own CA in the variable SSL_CERT_FILE, or use ws:// in a network that you trust"
        return TransportError(f"no encrypted connection ({reason})", where=self.url, hint=hint)


class WebReplPort(FramedPort):
    """The terminal of a board's WebREPL, which is connected. Call `abegin` first."""

    def __init__(self, client: WebReplClient, where: str) -> None:
        super().__init__(client, where)
        self._client = client

    async def abegin(self, password: str, timeout: float) -> None:
        """Log in within `timeout` seconds."""
        await self._converse(self._client.open(password, timeout), timeout)


def parse(url: str, rest: str) -> WebReplAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    host, port = url_parts.endpoint(url, rest)
    options = dict(url_parts.options(url, rest, OPTIONS))
    if "" in options.values() or len(options) > 1:
        raise url_parts.bad(url, f"one of {PASSWORD_FILE} and {PASSWORD_ENV} names where the password is")
    tls = url.startswith("wss:")
    return WebReplAddress(url, host, port, tls, options.get(PASSWORD_FILE), options.get(PASSWORD_ENV))
