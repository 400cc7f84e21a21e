"""`/ws/tcp?host=...&port=...`: a WebSocket for each TCP connection to an allowed target.

What the target sends comes in binary messages, one for each read. Messages of the client, binary or text, are sent to
the target unchanged. When the target ends its connection, the WebSocket closes with 1000; when the client closes the
WebSocket, the connection to the target ends. An error comes as a text message, as on the other WebSockets.

Neither end is read while the other one does not take what was read before: TCP then slows the sender. So a stream holds
at most one read for the client, and one message for the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from functools import partial

import structlog

from fastflight.errors import FastFlightError, RequestError, TransportError, TransportTimeout, nearest
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.http.quota import Quota
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import Opening, Talk

log = structlog.get_logger(__name__)

# The fastest of all sizes from 16 to 256 KB, in tens of measurements.
READ_BYTES = 128 * 1024
# The system's receive buffer for a target: one read on its way to the client, and the next one.
RECEIVE_BUFFER_BYTES = 2 * READ_BYTES
# Streams at a time, of all clients and of one name. A stream whose client does not read holds about 0.3 MB.
MAX_STREAMS = 256
MAX_STREAMS_OF_ONE = 64
# When a client that found no place may try again.
RETRY_SECONDS = 5.0
# How long it may take to resolve a name and connect to the first address that answers. A board that wakes up takes a
# second or two.
CONNECT_SECONDS = 10.0
# A target that takes less than a chunk in this time is stuck. A line at 2400 baud takes 240 bytes a second.
STALL_SECONDS = 120.0
CHUNK_BYTES = 16 * 1024
# With times in the log: reads between two lines.
READS = 100
# What the log calls a MB: 6400 reads of 16 KB are 100 MB.
MB = 1024 * 1024
KEYS = ("host", "port", "ticket")


class Relay:
    """Accepts WebSockets of the kind `tcp`."""

    def __init__(self, allowed: AllowedTargets, *, read_bytes: int = READ_BYTES, timing: bool = False) -> None:
        """With `timing`, the log gets the times of every 100 reads, at debug level."""
        self._allowed = allowed
        self._read_bytes = read_bytes
        self._timing = timing
        # The holders of places. Each is set when its stream must give the place up.
        self._places: Quota[asyncio.Event] = Quota(
            MAX_STREAMS,
            MAX_STREAMS_OF_ONE,
            "relayed streams",
            retry_seconds=RETRY_SECONDS,
            hint="Close one, or wait",
            newest=True,
        )

    def __call__(self, opening: Opening) -> Talk:
        if opening.rest:
            raise HttpRefusal(
                404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/tcp?host=...&port=..."
            )
        if unknown := next((key for key in opening.query if key not in KEYS), None):
            raise RequestError("unknown key", where=unknown[:80], hint=nearest(unknown, KEYS))
        return partial(self._talk, opening)

    async def _talk(self, opening: Opening, channel: WebSocketChannel) -> str:
        """Serve a stream as long as it has a place."""
        name, evicted = opening.caller.own_name, asyncio.Event()
        if (other := self._places.take(name, evicted)) is not None:
            other.set()

        async def lose_place() -> Exception:
            await evicted.wait()
            return HttpRefusal(503, "another client has fewer streams, and gets this place")

        try:
            async with cancel_when(lose_place):
                return await self._relay(opening, channel)
        finally:
            self._places.leave(name, evicted)

    async def _relay(self, opening: Opening, channel: WebSocketChannel) -> str:
        host, port = opening.query.get("host", ""), opening.query.get("port", "")
        stream = RelayedStream(f"{host}:{port}"[:100], channel)
        ended = "stopped by the server"
        try:
            async with _timeout(CONNECT_SECONDS, "no answer within", stream.target):
                addresses = await self._allowed.resolve(host, port, opening.caller, opening.own_port)
                sock = await _connect(addresses)
            with sock:
                async with cancel_when(partial(stream.send_to_target, sock)):
                    await stream.send_to_client(sock, self._read_bytes, timing=self._timing)
            ended = "the target has ended the connection"
        except FastFlightError as error:
            ended = error.what
            raise
        except OSError as error:
            ended = os.strerror(error.errno).lower() if error.errno else "cannot be reached"
            raise TransportError(ended, where=stream.target) from error
        finally:
            log.info("relayed", target=stream.target, ended=ended, received=stream.summary(), sent_bytes=stream.sent)
        return ended


class RelayedStream:
    """Passes bytes between the client at `channel` and a target, and measures them."""

    def __init__(self, target: str, channel: WebSocketChannel) -> None:
        self.target = target
        self._channel = channel
        self._began = time.perf_counter()
        self._reads = self._received = self.sent = 0

    async def send_to_client(self, sock: socket.socket, read_bytes: int, *, timing: bool) -> None:
        """Send what the target sends, until it ends the connection."""
        loop, buffer = asyncio.get_running_loop(), memoryview(bytearray(read_bytes))
        read_ns = pack_ns = send_ns = logged = 0
        while True:
            began = time.perf_counter_ns()
            try:  # first without the loop, which would wait for the next round even if there is data
                size = sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                size = await loop.sock_recv_into(sock, buffer)
            if not size:
                return
            read = time.perf_counter_ns()
            message = bytes(buffer[:size])
            packed = time.perf_counter_ns()
            await self._channel.send(message)
            read_ns, pack_ns, send_ns = (
                read_ns + read - began,
                pack_ns + packed - read,
                send_ns + time.perf_counter_ns() - packed,
            )
            self._reads += 1
            self._received += size
            if timing and self._reads % READS == 0:
                log.debug(
                    "relay",
                    target=self.target,
                    reads=READS,
                    read_us=read_ns // 1000,
                    pack_us=pack_ns // 1000,
                    send_us=send_ns // 1000,
                    bytes=self._received - logged,
                    total=self._received,
                )
                read_ns, pack_ns, send_ns, logged = 0, 0, 0, self._received

    async def send_to_target(self, sock: socket.socket) -> Exception:
        """Send what the client sends, until it leaves. Never returns, but raises `Stopped` or `TransportTimeout`.

        If the target takes no more, what the client sends is dropped. Reading the target then tells how it ended.
        """
        loop, broken = asyncio.get_running_loop(), False
        while True:
            message = await self._channel.receive()
            data = memoryview(message.encode(errors="replace") if isinstance(message, str) else message)
            for start in range(0, 0 if broken else len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                try:
                    async with _timeout(STALL_SECONDS, "took nothing for", self.target):
                        await loop.sock_sendall(sock, chunk)
                except OSError:
                    broken = True
                    break
                self.sent += len(chunk)

    def summary(self) -> str:
        """Return text such as `100MB in 2340ms (42.74 MB/s, 6400 reads)`; sizes under a MB are in bytes."""
        seconds, size = time.perf_counter() - self._began, self._received
        rate = size / MB / seconds if seconds else 0.0
        text = f"{size / MB:.2f}".rstrip("0").rstrip(".") + "MB" if size >= MB else f"{size}B"
        return f"{text} in {seconds * 1000:.0f}ms ({rate:.2f} MB/s, {self._reads} reads)"


@contextlib.asynccontextmanager
async def _timeout(seconds: float, what: str, target: str) -> AsyncIterator[None]:
    """Raise `TransportTimeout` if the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TransportTimeout(f"{what} {seconds:g} s", where=target) from error


async def _connect(addresses: list[tuple[str, int]]) -> socket.socket:
    """Connect to the first address that answers; return the socket, or raise the error of the last one."""
    failure = OSError("no address")
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a host that has vanished, in hours
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure
