"""The relay under TLS, where its client's socket is not the relay's to read: bytes, ends, and who does not read."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from fastflight.concurrency import Shard
from fastflight.gateway import listen
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.relay.client import QUEUED_BYTES
from fastflight.gateway.relay.relay import Relay
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.protocol.relay import Closed, End, Event, Opened, Reason, RelayConnection, RelayData
from tests.support.waiting import auntil

from .relay_user import LOCAL, echo, flood, nothing, target


class Upgrading(asyncio.Protocol):
    """An HTTP server that knows one request."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            lines = [line.partition(b": ") for line in self._head.split(b"\r\n")[1:-2]]
            self._relay.take_over(self._transport, [(name.lower(), value) for name, _, value in lines])


class Secure:
    """A relay under TLS, and those who connect to it."""

    def __init__(self, relay: Relay, port: int, trusting: ssl.SSLContext) -> None:
        self.relay = relay
        self._port = port
        self._trusting = trusting

    def connect(self, **options: Any) -> connect:
        return connect(f"wss://localhost:{self._port}/relay", ssl=self._trusting, compression=None, **options)


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server that is `localhost`, and of who trusts it."""
    authority = trustme.CA()
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(serving)
    authority.configure_trust(trusting)
    return serving, trusting


@asynccontextmanager
async def secured() -> AsyncIterator[Secure]:
    serving, trusting = contexts()
    relay = Relay(AllowedTargets(LOCAL), OriginPolicy())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upgrading(relay), "127.0.0.1", 0, ssl=serving)
    try:
        yield Secure(relay, server.sockets[0].getsockname()[1], trusting)
    finally:
        await relay.aclose()
        server.close()
        await server.wait_closed()
        assert relay.clients == 0


class Talk:
    """One side of the relay over `ws`."""

    def __init__(self, ws: ClientConnection, window: int = 256 * 1024) -> None:
        self.ws = ws
        self.side = RelayConnection(accepts=False, window_bytes=window)

    async def events(self) -> list[Event]:
        message = await self.ws.recv()
        assert isinstance(message, bytes)
        return list(self.side.feed(message))

    async def open(self, address: str) -> None:
        await self.ws.send(self.side.open(1, address))
        assert await self.events() == [Opened(1)]


def test_bytes_go_both_ways_unchanged_and_ends_are_passed_on(run: Any) -> None:
    async def work() -> None:
        content = os.urandom(3_000_001)
        async with target(echo) as there, secured() as secure, secure.connect() as ws:
            talk = Talk(ws)
            await talk.open(there)
            found, sent, over = bytearray(), 0, False
            while not over:
                while size := min(talk.side.credit(1), len(content) - sent, 60_000):
                    await ws.send(talk.side.data(1, size) + content[sent : sent + size])
                    sent += size
                    if sent == len(content):
                        await ws.send(talk.side.end(1))
                for event in await talk.events():
                    if isinstance(event, RelayData):
                        found += event.data
                        if given := talk.side.consumed(1, len(event.data)):
                            await ws.send(given)
                    elif isinstance(event, Closed):
                        assert event.reason == Reason.DONE
                        over = True
                    else:
                        assert isinstance(event, End) or type(event).__name__ == "Credited"
            assert found == content

    run(work())


def test_a_client_that_stops_reading_costs_a_bounded_queue_and_goes_on_when_it_reads(run: Any) -> None:
    async def work() -> None:
        async with target(flood) as much, target(echo) as there, secured() as secure:
            async with secure.connect(max_queue=1) as ws, secure.connect() as other:
                talk = Talk(ws, window=1 << 30)
                await talk.open(much)
                (client,) = (each for each in secure.relay._clients if each.streams)
                await auntil(lambda: not client.has_room)
                beside = Talk(other)
                await beside.open(there)
                await other.send(beside.side.data(1, 5) + b"there")
                found = b""
                while len(found) < 5:
                    found += b"".join(bytes(each.data) for each in await beside.events() if isinstance(each, RelayData))
                assert found == b"there"
                assert client.outgoing.size <= QUEUED_BYTES + 2 * client.buffers.size
                seen = 0
                while seen < 4 * QUEUED_BYTES:
                    seen += sum(len(event.data) for event in await talk.events() if isinstance(event, RelayData))
                ws.transport.abort()  # to close would wait for all that is on its way

    run(work())


def test_a_client_that_takes_nothing_is_cut_and_leaves_its_place(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.http.connections.STALL_SECONDS", 0.05)
    monkeypatch.setattr("fastflight.gateway.relay.relay.LOOK_SECONDS", 0.02)

    async def work() -> None:
        async with target(flood) as much, secured() as secure, secure.connect(max_queue=1) as ws:
            await Talk(ws, window=1 << 30).open(much)
            await auntil(lambda: not secure.relay.clients)
            assert secure.relay._connections.not_read == 1
            ws.transport.abort()

    run(work())


def test_a_client_that_leaves_takes_its_streams_along(run: Any) -> None:
    async def work() -> None:
        left = asyncio.Event()

        async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            left.set()

        async with target(waits) as there, secured() as secure:
            ws = await secure.connect()
            await Talk(ws).open(there)
            ws.transport.abort()
            await left.wait()
            await ws.wait_closed()

    run(work())


def test_its_end_is_told_and_who_may_not_come_in_is_told_too(run: Any) -> None:
    async def work() -> None:
        async with secured() as secure:
            async with secure.connect() as ws:
                await (await ws.ping())
                closing = asyncio.ensure_future(secure.relay.aclose())
                assert list(Talk(ws).side.feed(await ws.recv())) == [  # type: ignore[arg-type]
                    Closed(0, Reason.SHUTDOWN, "the gateway shuts down")
                ]
                with pytest.raises(ConnectionClosed):
                    await ws.recv()
                assert ws.close_code == 1001
                await closing
            with pytest.raises(Exception, match="HTTP 503"):
                await secure.connect()

    run(work())


def test_the_gateways_own_port_relays_under_tls_and_its_end_is_told() -> None:
    async def work() -> None:
        serving, trusting = contexts()
        relay = Relay(AllowedTargets(LOCAL), OriginPolicy(secure=True))
        gateway = listen(nothing, Shard("gateway").start(), 0, relay=relay, tls=serving)
        async with target(echo) as there, connect(f"wss://localhost:{gateway.port}/relay", ssl=trusting) as ws:
            talk = Talk(ws)
            await talk.open(there)
            await ws.send(talk.side.data(1, 100_000) + bytes(range(100)) * 1000)
            found = b""
            while len(found) < 100_000:
                found += b"".join(bytes(each.data) for each in await talk.events() if isinstance(each, RelayData))
            assert found == bytes(range(100)) * 1000
            closing = asyncio.ensure_future(asyncio.to_thread(gateway.close))
            while not isinstance(event := (await talk.events())[0], Closed):
                assert event is not None
            assert (event.stream, event.reason) == (0, Reason.SHUTDOWN)
            await closing
        assert relay.clients == 0

    asyncio.run(work())
