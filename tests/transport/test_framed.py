"""A port whose bytes are wrapped in a protocol, and a server that breaks that protocol."""

from __future__ import annotations

import asyncio

import pytest

from fastflight.errors import TransportError
from fastflight.transport.framed import FramedPort
from fastflight.transport.port_tap import PortTap
from fastflight.transport.socket import SocketAddress
from fastflight.transport.tap import Tap

SOON = 60.0


class Broken:
    """A protocol in which nothing is allowed."""

    unsent = unread = False

    def feed(self, data: bytes) -> None:
        raise TransportError("not the protocol")


async def test_who_listens_learns_that_the_server_breaks_the_protocol() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await reader.read()  # keeps the connection
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = SocketAddress("the board", "127.0.0.1", server.sockets[0].getsockname()[1])
        port = await address.aconnect(lambda: FramedPort(Broken(), "the board"), SOON)
        port.tapping = PortTap(Tap())
        with pytest.raises(TransportError, match="not the protocol"):
            await asyncio.wait_for(port.alisten(), SOON)
        await port.aclose()
