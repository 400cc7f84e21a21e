"""One client's connection: what it sent before it left, how it is told to go, and how a vanished one is noticed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from fastflight.bridge.connection import RECEIVE_BYTES, Connection
from fastflight.transport.socket import KEEPALIVE

Serve = Callable[[Connection], Awaitable[None]]
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def meet(serve: Serve, peer: Peer) -> None:
    """A peer that connects, and whatever serves its connection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        serving: list[asyncio.Task[None]] = []

        async def run(connection: Connection) -> None:
            try:
                await serve(connection)
            finally:
                await connection.finish(linger=0)

        server = await loop.create_server(
            lambda: Connection(lambda connection: serving.append(asyncio.create_task(run(connection)))), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await peer(reader, writer)
        writer.transport.abort()
        await asyncio.gather(*serving)
        server.close()

    asyncio.run(main())


async def _nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_peer_that_vanishes_is_noticed_by_the_system() -> None:
    async def serve(connection: Connection) -> None:
        stream = connection._transport.get_extra_info("socket")
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                assert stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value

    meet(serve, _nothing)


def test_a_peer_that_has_gone_before_it_was_met_is_no_failure() -> None:
    class Gone(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return stream if name == "socket" else default

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    async def main() -> None:
        accepted: list[Connection] = []
        Connection(accepted.append).connection_made(Gone())
        assert [connection.peer for connection in accepted] == ["unknown:0"]

    stream = socket.socket()
    stream.close()  # no option can be set on it any more
    asyncio.run(main())


def test_what_was_sent_before_the_end_is_received_before_the_end() -> None:
    got: list[bytes] = []

    async def serve(connection: Connection) -> None:
        while data := await connection.receive():
            got.append(data)
        assert await connection.receive() == b""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 3 * RECEIVE_BYTES)
        writer.write_eof()
        await reader.read()

    meet(serve, peer)
    assert sum(map(len, got)) == 3 * RECEIVE_BYTES


def test_a_peer_that_is_told_to_go_reads_why_though_it_was_sending() -> None:
    async def serve(connection: Connection) -> None:
        await connection.receive()
        await connection.finish(b"because", linger=30)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 1_000_000)
        assert await reader.read() == b"because"

    meet(serve, peer)


@pytest.mark.parametrize("last", [b"", b"because"])
def test_a_peer_that_stays_is_hung_up_on(last: bytes) -> None:
    ended = asyncio.Event()

    async def serve(connection: Connection) -> None:
        await connection.finish(last, linger=0.01)
        ended.set()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        assert await reader.read() == last

    meet(serve, peer)


def test_what_the_peer_sends_waits_with_the_peer_while_nobody_takes_it() -> None:
    async def serve(connection: Connection) -> None:
        while not connection._paused:
            await connection._received.wait()
            await asyncio.sleep(0)
        assert RECEIVE_BYTES <= connection._buffered_bytes < 2 * RECEIVE_BYTES
        while connection._paused:
            assert await connection.receive()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 4 * RECEIVE_BYTES)
        await reader.read()

    meet(serve, peer)
