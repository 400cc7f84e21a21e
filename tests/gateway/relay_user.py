"""A client of the relay that decides what it sends and when it reads, and targets for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side

from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.relay.client import RelayClient
from fastflight.gateway.relay.outgoing import Buffers
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.gateway.relay.wire import SocketWire
from fastflight.protocol.relay import Closed, End, Event, Opened, RelayConnection, RelayData

LOCAL = ("127.0.0.1:*", "[::1]:*")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def masked(payload: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    """A frame as a client sends it."""
    return Frame(opcode, payload).serialize(mask=True)


class User:
    """The other end of a `RelayClient`'s socket."""

    def __init__(self, sock: socket.socket, window: int = 64 * 1024) -> None:
        self.sock = sock
        self.connection = RelayConnection(accepts=False, window_bytes=window)
        self._websocket = Protocol(Side.CLIENT)
        self._came: deque[Event | Frame | Close] = deque()
        self.ended = False

    async def say(self, frame: bytes, opcode: Opcode = Opcode.BINARY) -> None:
        await self.raw(masked(frame, opcode))

    async def raw(self, wire: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, wire)

    async def next(self) -> Event | Frame | Close | None:
        """What comes next of the relay, or of the WebSocket itself; None at the end."""
        while not self._came and not self.ended:
            try:
                came = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
            except ConnectionError:
                came = b""
            self.ended = not came
            self._websocket.receive_data(came)
            for frame in self._websocket.events_received():
                assert isinstance(frame, Frame)
                if frame.opcode is Opcode.BINARY:
                    self._came.extend(self.connection.feed(frame.data))
                else:
                    self._came.append(Close.parse(frame.data) if frame.opcode is Opcode.CLOSE else frame)
            assert self._websocket.parser_exc is None
        return self._came.popleft() if self._came else None

    async def open(self, stream: int, target: str) -> Event | Frame | Close | None:
        """Ask for a stream; the answer."""
        await self.say(self.connection.open(stream, target))
        return await self.next()

    async def send(self, stream: int, data: bytes) -> None:
        """All of it, as credit comes; nothing else may come meanwhile."""
        while data:
            size = min(len(data), self.connection.credit(stream), 64 * 1024)
            if size:
                await self.say(self.connection.data(stream, size) + data[:size])
                data = data[size:]
            else:
                await self.next()

    async def receive(self, stream: int, size: int | None = None) -> bytes:
        """So many bytes, or all to the stream's end; credit is given back."""
        found = bytearray()
        while size is None or len(found) < size:
            event = await self.next()
            assert isinstance(event, RelayData | End) or type(event).__name__ == "Credited", event
            if isinstance(event, RelayData):
                found += event.data
                if given := self.connection.consumed(stream, len(event.data)):
                    await self.say(given)
            elif isinstance(event, End):
                break
        return bytes(found)

    async def leave(self, stream: int) -> None:
        """Close one's side of a stream, and wait for the gateway's."""
        await self.say(self.connection.end(stream))
        while not isinstance(event := await self.next(), Closed):
            assert event is not None
        await self.say(self.connection.close(stream))


@asynccontextmanager
async def relayed(
    *rules: str, read_bytes: int = 128 * 1024, window: int = 64 * 1024, **options: Any
) -> AsyncIterator[tuple[User, RelayClient]]:
    """A client without a network before it. `lookup` and `devices` are those of its targets."""
    theirs, ours = socket.socketpair()
    theirs.setblocking(False)
    ours.setblocking(False)
    gone = asyncio.Event()
    allowed = AllowedTargets(rules or LOCAL, options.pop("lookup", None), options.pop("devices", {}))
    buffers = Buffers(read_bytes)
    client = RelayClient(SocketWire(ours, buffers), allowed, buffers, lambda _: gone.set(), **options)
    client.start(b"")
    try:
        yield User(theirs, window), client
    finally:
        theirs.close()
        client.abort()
        await gone.wait()
        await asyncio.sleep(0)


@asynccontextmanager
async def target(serve: Serve, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """A server; its address as the relay takes it."""
    running: set[asyncio.Task[Any]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # cancelled only at the very end
                await serve(reader, writer)
        finally:
            running.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(one, host, 0)
    try:
        name, port = server.sockets[0].getsockname()[:2]
        yield f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give back what comes, and then end."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never stop sending."""
    while True:
        writer.write(bytes(1 << 16))
        await writer.drain()


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take nothing."""
    await asyncio.Event().wait()


async def opened(user: User, stream: int, address: str) -> None:
    """A stream that must open."""
    assert await user.open(stream, address) == Opened(stream)


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """The application beside the relay."""
    assert scope["type"] == "http", scope
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})
