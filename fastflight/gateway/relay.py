"""The relay: TCP streams to allowed targets, over a WebSocket at `/relay` of the gateway's own port.

A request for it passes the same door as any other, and is then taken over: its socket leaves the HTTP server, and is
read and written by `RelayClient`, without a copy and without a task. The protocol is in `fastflight.protocol.relay`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import socket
from collections.abc import Sequence

from fastflight.gateway.front import Door, Header
from fastflight.gateway.relay_client import RelayClient
from fastflight.gateway.relay_outgoing import Buffers
from fastflight.gateway.relay_stream import CONNECT_SECONDS, Taps
from fastflight.gateway.relay_targets import AllowedTargets
from fastflight.gateway.status import Refused, told
from fastflight.protocol.relay import MAX_PAYLOAD_BYTES, Reason
from fastflight.protocol.websocket import CloseCode, accept

PATH = b"/relay"
# Of 16 to 256 KB, reads of this size moved the most.
READ_BYTES = 128 * 1024
# Each costs half a megabyte when it does not read, and has up to 64 streams.
MAX_CLIENTS = 64
# What clients get to read that the relay shuts down.
CLOSE_SECONDS = 2.5
_REASONS = {400: "Bad Request", 403: "Forbidden", 421: "Misdirected Request", 426: "Upgrade Required"}


class Relay:
    """The clients of one relay, and where they may go. Belongs to the gateway's loop."""

    def __init__(
        self,
        allowed: AllowedTargets,
        door: Door,
        *,
        read_bytes: int = READ_BYTES,
        taps: Taps = lambda device: None,
        connect_timeout: float = CONNECT_SECONDS,
        timing: bool = False,
    ) -> None:
        """`taps` gives what is to see the traffic of a target that is a device; `timing` logs every 100 reads."""
        assert 0 < read_bytes <= MAX_PAYLOAD_BYTES
        self._allowed = allowed
        self._door = door
        self._buffers = Buffers(read_bytes)
        self._taps = taps
        self._connect_timeout = connect_timeout
        self._timing = timing
        self._clients: set[RelayClient] = set()
        self._empty = asyncio.Event()
        self._closed = False

    @property
    def clients(self) -> int:
        return len(self._clients)

    def take_over(self, transport: asyncio.Transport, headers: Sequence[Header]) -> None:
        """Answer a request for `PATH`, and take its connection away from `transport`."""
        try:
            key = self._checked(headers)
        except Refused as error:
            status, body = told(error)
            head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unavailable')}\r\ncontent-type: application/json\r\n"
            if status == 426:
                head += "sec-websocket-version: 13\r\n"
            transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
            transport.close()
            return
        client = RelayClient(
            _detached(transport),
            self._allowed,
            self._buffers,
            self._over,
            taps=self._taps,
            connect_timeout=self._connect_timeout,
            timing=self._timing,
        )
        self._clients.add(client)
        client.start(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: %s\r\n\r\n" % accept(key).encode()
        )

    async def aclose(self) -> None:
        """Tell the clients, and end what is left of them in bounded time."""
        self._closed = True
        for client in list(self._clients):
            client.end(CloseCode.GOING_AWAY, Reason.SHUTDOWN, "the gateway shuts down")
        if self._clients:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
            except TimeoutError:
                pass
        for client in list(self._clients):
            client.abort()

    def _over(self, client: RelayClient) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._empty.set()

    def _checked(self, headers: Sequence[Header]) -> str:
        """The key of a handshake (RFC 6455, 4.2.1) that may come in."""
        self._door.check(headers)
        given = dict(headers)
        if given.get(b"sec-websocket-version") != b"13":
            raise Refused(426, "not a version that is spoken here", where="Sec-WebSocket-Version", hint="Known: 13")
        key = given.get(b"sec-websocket-key", b"").decode("latin-1")
        try:
            whole = len(base64.b64decode(key, validate=True)) == 16
        except binascii.Error:
            whole = False
        if not whole:
            raise Refused(400, "not the key of a WebSocket", where="Sec-WebSocket-Key", hint="Send 16 bytes in base64")
        if self._closed or len(self._clients) >= MAX_CLIENTS:
            raise Refused(503, "the relay takes no more connections", where="/relay", hint="Close one, or wait")
        return key


class _Left(asyncio.Protocol):
    """Of a transport whose connection goes on without it."""


def _detached(transport: asyncio.Transport) -> socket.socket:
    """The socket of `transport`, which is closed; the connection is not, since this is another descriptor of it."""
    sock = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanished is noticed, in the end
    transport.set_protocol(_Left())
    transport.abort()
    return sock
