"""The relay: TCP streams to allowed targets, over a WebSocket at `/relay` of the gateway's own port.

A request for it passes the same door as any other, and is then taken over: its socket leaves the HTTP server, and is
read and written for `RelayClient`, without a copy and without a task. Under TLS its transport does, since only that has
the keys. The protocol is in `fastflight.protocol.relay`.
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
from fastflight.gateway.callers import ANYONE, Caller
from fastflight.gateway.door import Door
from fastflight.gateway.errors import HttpRefusal, closing_answer
from fastflight.gateway.http.connections import Connections, StalledReaders
from fastflight.gateway.http.quota import Quota
from fastflight.gateway.relay.client import RelayClient
from fastflight.gateway.relay.outgoing import Buffers, unpaced
from fastflight.gateway.relay.stream import CONNECT_SECONDS, Taps
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.gateway.relay.wire import SocketWire, TransportWire
from fastflight.protocol.relay import MAX_PAYLOAD_BYTES, Reason

PATH = b"/relay"
# Of 16 to 256 KB, reads of this size moved the most.
READ_BYTES = 128 * 1024
# Each costs half a megabyte when it does not read, and has up to 64 streams. One of a name with fewer takes the place
# of the newest of the name that has most: what has stood longest stays.
MAX_CLIENTS = 64
# Of these, of one name: some pages and programs of one person, and nobody can take them all.
MAX_CLIENTS_OF_ONE = 16
# What clients get to read that the relay shuts down.
CLOSE_SECONDS = 2.5
# What one that is refused gets to read that.
REFUSED_SECONDS = 5.0
# What an answer of a status has to say beside its text.
_HEADERS = {401: 'www-authenticate: Bearer realm="fastflight"\r\n', 426: "sec-websocket-version: 13\r\n"}
# After which a place may be free.
RETRY_SECONDS = 5.0
# How often it is looked whether those that are there still may be.
LOOK_SECONDS = 1.0
# Who opens a WebSocket with these headers, this query, and a certificate of this name; raises why they may not.
Admit = Callable[[Sequence[Header], bytes, str], Awaitable[Caller]]


async def _anyone(headers: Sequence[Header], query: bytes, certificate: str) -> Caller:
    """Where no proof is wanted."""
    return ANYONE


class Relay:
    """The clients of one relay, and where they may go. Belongs to the gateway's loop."""

    def __init__(
        self,
        allowed: AllowedTargets,
        door: Door,
        admit: Admit = _anyone,
        *,
        check: Callable[[Caller], None] = lambda caller: None,
        read_bytes: int = READ_BYTES,
        taps: Taps = lambda device: None,
        connect_timeout: float = CONNECT_SECONDS,
        timing: bool = False,
        connections: Connections | None = None,
    ) -> None:
        """`admit` says who opens a WebSocket, and `check` raises once what they had proven holds no more.

        `taps` gives what is to see the traffic of a target that is a device; `timing` logs every 100 reads.
        Clients that do not read are counted among the `connections` of the port. `RequestError` on Windows, whose
        sockets can be neither duplicated by their descriptor nor written in parts.
        """
        if os.name == "nt":
            raise RequestError(
                "the relay does not run on Windows",
                where="relay",
                hint="Run the gateway on Linux or macOS, or leave the relay's targets out",
            )
        assert 0 < read_bytes <= MAX_PAYLOAD_BYTES
        self._allowed = allowed
        self._door = door
        self._buffers = Buffers(read_bytes)
        self._taps = taps
        self._connect_timeout = connect_timeout
        self._timing = timing
        self._admit = admit
        self._check = check
        # With those that were told that they end, and have not read it yet.
        self._clients: dict[RelayClient, Caller] = {}
        self._places: Quota[RelayClient] = Quota(
            MAX_CLIENTS,
            MAX_CLIENTS_OF_ONE,
            "connections to the relay",
            retry_seconds=RETRY_SECONDS,
            hint="Close one, or wait",
        )
        self._coming: set[asyncio.Task[None]] = set()
        self._looking: asyncio.TimerHandle | None = None
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
        """Answer a request for `PATH`, and take its connection away from `transport`."""
        transport.pause_reading()  # what follows is not HTTP
        coming = asyncio.ensure_future(self._come(transport, headers, query, certificate))
        self._coming.add(coming)
        coming.add_done_callback(self._coming.discard)
        # Here, because one that is cancelled before its first step catches nothing.
        coming.add_done_callback(lambda done: transport.abort() if done.cancelled() else None)

    async def _come(
        self, transport: asyncio.Transport, headers: Sequence[Header], query: bytes, certificate: str
    ) -> None:
        try:
            self._door.check(headers)
            caller = await self._admit(headers, query, certificate)
            key, yielding = self._checked(headers, caller)
            if transport.is_closing():
                return
            wire = self._wire(transport)
        except Exception as error:
            transport.write(closing_answer(error, _HEADERS))
            transport.close()
            # Nobody looks after it any more, and it may not have read what it was answered before.
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, transport.abort)
            return
        if yielding:
            self._put_out(yielding[-1])
        client = RelayClient(
            wire,
            self._allowed,
            self._buffers,
            self._over,
            identity=caller.identity,
            taps=self._taps,
            connect_timeout=self._connect_timeout,
            timing=self._timing,
        )
        self._places.take(caller.known_name, client)
        self._clients[client] = caller
        if self._looking is None:
            self._look()
        client.start(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: %s\r\n\r\n" % accept_key(key).encode()
        )

    def _wire(self, transport: asyncio.Transport) -> TransportWire | SocketWire:
        if transport.get_extra_info("ssl_object") is not None:
            return TransportWire(transport, self._buffers)
        return SocketWire(_detached(transport), self._buffers)

    def _put_out(self, client: RelayClient) -> None:
        """Another gets its place, now: it need not have read that it ends, unless too many have not."""
        self._places.leave(self._clients[client].known_name, client)
        if len(self._clients) < 2 * MAX_CLIENTS:
            client.end(CloseCode.TRY_AGAIN_LATER, Reason.LIMIT, "another has fewer connections, and gets this place")
        else:
            client.abort()

    def _look(self) -> None:
        """End those whose proof holds no more, and those that do not read; see to targets. As long as any is there."""
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
        self._looking = loop.call_later(LOOK_SECONDS, self._look) if self._clients else None

    async def aclose(self) -> None:
        """Tell the clients, and end what is left of them in bounded time."""
        self._closed = True
        for coming in self._coming:
            coming.cancel()
        if self._looking is not None:
            self._looking.cancel()
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
        """The key of a handshake (RFC 6455, 4.2.1) of `caller` that may come in; those of whom one has to go for it."""
        given = dict(headers)
        if given.get(b"sec-websocket-version") != b"13":
            raise HttpRefusal(426, "not a version that is spoken here", where="Sec-WebSocket-Version", hint="Known: 13")
        key = given.get(b"sec-websocket-key", b"").decode("latin-1")
        try:
            whole = len(base64.b64decode(key, validate=True)) == 16
        except binascii.Error:
            whole = False
        if not whole:
            raise HttpRefusal(
                400, "not the key of a WebSocket", where="Sec-WebSocket-Key", hint="Send 16 bytes in base64"
            )
        if self._closed:
            raise HttpRefusal(503, "the relay takes no more connections", where="/relay", hint="Ask again later")
        return key, self._places.replaceable(caller.known_name)


class _Left(asyncio.Protocol):
    """Of a transport whose connection goes on without it."""


def _detached(transport: asyncio.Transport) -> socket.socket:
    """The socket of `transport`, which is closed; the connection is not, since this is another descriptor of it."""
    try:
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
    except OSError as error:
        hint = "Close other connections, or raise the limit of descriptors where the server runs"
        raise HttpRefusal(503, "there is no descriptor left for it", where="/relay", hint=hint) from error
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanished is noticed, in the end
    unpaced(sock)
    transport.set_protocol(_Left())
    transport.abort()
    return sock
