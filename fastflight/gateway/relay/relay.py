"""The relay: TCP streams to allowed targets, over a WebSocket at `/relay` of the gateway's own port.

An upgrade passes the same checks as any other request. Then the relay takes its connection over from uvicorn: it
uses the socket for a `RelayClient`, without copies and without a task. With TLS it uses the transport, which has the
keys. The protocol is in `fastflight.protocol.relay`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from websockets.frames import CloseCode
from websockets.utils import accept_key

from fastflight.errors import FastFlightError, RequestError
from fastflight.gateway.asgi import Header
from fastflight.gateway.auth import ANYONE, Caller
from fastflight.gateway.errors import HttpRefusal, closing_answer
from fastflight.gateway.http.connections import Connections, StalledReaders
from fastflight.gateway.http.quota import Quota
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.relay.client import RelayClient
from fastflight.gateway.relay.outgoing import Buffers, unpaced
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.gateway.relay.wire import SocketWire, TransportWire
from fastflight.protocol.relay import MAX_PAYLOAD_BYTES, Reason

PATH = b"/relay"
# The fastest of all sizes from 16 to 256 KB.
READ_BYTES = 128 * 1024
# A client that does not read costs half a megabyte; each has up to 64 streams. When all places are taken, a client of a
# name with fewer takes the place of the newest client of the name that has most: long-lived connections stay.
MAX_CLIENTS = 64
# Clients of one name: enough for the pages and programs of one person, and nobody can take all places.
MAX_CLIENTS_OF_ONE = 16
# How long clients have to read that the relay shuts down.
CLOSE_SECONDS = 2.5
# How long a refused client has to read the answer.
REFUSED_SECONDS = 5.0
# Header lines that answers with this status require.
_HEADERS = {401: 'www-authenticate: Bearer realm="fastflight"\r\n', 426: "sec-websocket-version: 13\r\n"}
# When a client that was refused for want of a place may try again.
RETRY_SECONDS = 5.0
# How often clients are checked: their access, whether they read, and whether their targets have ended.
LOOK_SECONDS = 1.0
# Takes the headers, the query and the certificate's name of a WebSocket's request. Returns the caller that opens it, or
# raises the error to refuse it with.
Admit = Callable[[Sequence[Header], bytes, str], Awaitable[Caller]]


async def _anyone(headers: Sequence[Header], query: bytes, certificate: str) -> Caller:
    """Admit everybody: the default without authentication."""
    return ANYONE


class Relay:
    """Serves the clients of the relay. Belongs to the gateway's loop."""

    def __init__(
        self,
        allowed: AllowedTargets,
        policy: OriginPolicy,
        admit: Admit = _anyone,
        *,
        check: Callable[[Caller], None] = lambda caller: None,
        read_bytes: int = READ_BYTES,
        timing: bool = False,
        connections: Connections | None = None,
    ) -> None:
        """`admit` authenticates a client; `check` raises when its access was revoked or changed.

        `timing` logs every 100 reads.
        Clients that are cut because they do not read are counted in `connections`. Raises `RequestError` on Windows,
        whose sockets can neither be duplicated by their descriptor nor send several buffers in one call.
        """
        if os.name == "nt":
            raise RequestError(
                "the relay does not run on Windows",
                where="relay",
                hint="Run the gateway on Linux or macOS, or leave the relay's targets out",
            )
        assert 0 < read_bytes <= MAX_PAYLOAD_BYTES
        self._allowed = allowed
        self._policy = policy
        self._buffers = Buffers(read_bytes)
        self._timing = timing
        self._admit = admit
        self._check = check
        # Including clients that are being ended and have not read this yet.
        self._clients: dict[RelayClient, Caller] = {}
        self._places: Quota[RelayClient] = Quota(
            MAX_CLIENTS,
            MAX_CLIENTS_OF_ONE,
            "connections to the relay",
            retry_seconds=RETRY_SECONDS,
            hint="Close one, or wait",
        )
        self._opening: set[asyncio.Task[None]] = set()
        self._next_check: asyncio.TimerHandle | None = None
        self._readers: StalledReaders[RelayClient] = StalledReaders()
        self._connections = connections or Connections()
        self._empty = asyncio.Event()
        self._closed = False

    @property
    def clients(self) -> int:
        return len(self._clients)

    def take_over(
        self, transport: asyncio.Transport, headers: Sequence[Header], query: bytes = b"", certificate: str = ""
    ) -> None:
        """Answer an upgrade at `PATH`, and take its connection over from `transport`."""
        transport.pause_reading()  # what follows is not HTTP
        opening = asyncio.ensure_future(self._open(transport, headers, query, certificate))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        # In a callback, since a task that is cancelled before its first step runs no `except` clause.
        opening.add_done_callback(lambda done: transport.abort() if done.cancelled() else None)

    async def _open(
        self, transport: asyncio.Transport, headers: Sequence[Header], query: bytes, certificate: str
    ) -> None:
        try:
            self._policy.check(headers)
            caller = await self._admit(headers, query, certificate)
            key, replaceable = self._checked(headers, caller)
            if transport.is_closing():
                return
            wire = self._wire(transport)
        except Exception as error:
            transport.write(closing_answer(error, _HEADERS))
            transport.close()
            # No deadline applies to this connection any more, so it needs a timer: its client may not read.
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, transport.abort)
            return
        if replaceable:
            self._replace(replaceable[-1])
        client = RelayClient(
            wire,
            self._allowed,
            self._buffers,
            self._over,
            identity=caller.identity,
            timing=self._timing,
        )
        self._places.take(caller.known_name, client)
        self._clients[client] = caller
        if self._next_check is None:
            self._check_clients()
        client.start(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: %s\r\n\r\n" % accept_key(key).encode()
        )

    def _wire(self, transport: asyncio.Transport) -> TransportWire | SocketWire:
        if transport.get_extra_info("ssl_object") is not None:
            return TransportWire(transport, self._buffers)
        return SocketWire(_detached(transport), self._buffers)

    def _replace(self, client: RelayClient) -> None:
        """Free a client's place at once and end it: politely, unless too many clients are being ended already."""
        self._places.leave(self._clients[client].known_name, client)
        if len(self._clients) < 2 * MAX_CLIENTS:
            client.end(CloseCode.TRY_AGAIN_LATER, Reason.LIMIT, "another has fewer connections, and gets this place")
        else:
            client.abort()

    def _check_clients(self) -> None:
        """End clients that do not read or whom `check` refuses, and poll the others; repeat while there are any."""
        loop = asyncio.get_running_loop()
        for client, caller in list(self._clients.items()):
            if self._readers.is_stalled(client, client.waiting(), loop.time()):
                self._connections.not_read += 1
                client.abort()
                continue
            client.look_again()
            try:
                self._check(caller)
            except FastFlightError as error:
                client.end(CloseCode.POLICY_VIOLATION, Reason.REFUSED, str(error))
        self._next_check = loop.call_later(LOOK_SECONDS, self._check_clients) if self._clients else None

    async def aclose(self) -> None:
        """Tell all clients that the relay shuts down, and end them in bounded time."""
        self._closed = True
        for opening in self._opening:
            opening.cancel()
        if self._next_check is not None:
            self._next_check.cancel()
        for client in list(self._clients):
            client.end(CloseCode.GOING_AWAY, Reason.SHUTDOWN, "the gateway shuts down")
        if self._clients:
            self._empty.clear()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._empty.wait()
            except TimeoutError:
                pass
        for client in list(self._clients):
            client.abort()

    def _over(self, client: RelayClient) -> None:
        self._readers.forget(client)
        caller = self._clients.pop(client, None)
        if caller is not None:
            self._places.leave(caller.known_name, client)
        if not self._clients:
            self._empty.set()

    def _checked(self, headers: Sequence[Header], caller: Caller) -> tuple[str, Sequence[RelayClient]]:
        """Check a handshake (RFC 6455, 4.2.1) of `caller`.

        Returns its key, and the clients of which the last must make room; none if a place is free.
        """
        fields = dict(headers)
        if fields.get(b"sec-websocket-version") != b"13":
            raise HttpRefusal(426, "not a supported version", where="Sec-WebSocket-Version", hint="Known: 13")
        key = fields.get(b"sec-websocket-key", b"").decode("latin-1")
        try:
            is_key = len(base64.b64decode(key, validate=True)) == 16
        except binascii.Error:
            is_key = False
        if not is_key:
            raise HttpRefusal(
                400, "not the key of a WebSocket", where="Sec-WebSocket-Key", hint="Send 16 bytes in base64"
            )
        if self._closed:
            raise HttpRefusal(503, "the relay takes no more connections", where="/relay", hint="Ask again later")
        return key, self._places.replaceable(caller.known_name)


class _Left(asyncio.Protocol):
    """The protocol of a transport whose connection was taken over: it ignores all events."""


def _detached(transport: asyncio.Transport) -> socket.socket:
    """Return the connection of `transport` as a socket with its own descriptor, and close the transport.

    Raises `HttpRefusal` (503) if the process has no descriptor left.
    """
    try:
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
    except OSError as error:
        hint = "Close other connections, or raise the server's limit of file descriptors"
        raise HttpRefusal(503, "the server has no file descriptor left", where="/relay", hint=hint) from error
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a host that has vanished, after a long time
    unpaced(sock)
    transport.set_protocol(_Left())
    transport.abort()
    return sock
