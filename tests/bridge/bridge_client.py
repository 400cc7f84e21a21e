"""Tools at the ports of a bridge in front of a line in memory."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastflight.bridge import Bridge
from fastflight.protocol.rfc2217_client import Rfc2217Client
from tests.bridge.memory_line import MemoryLine, bridged

KINDS = ["socket", "rfc2217"]
SET_BAUD_9600 = b"\xff\xfa\x2c\x01\x00\x00\x25\x80\xff\xf0"
SUSPEND, RESUME = b"\xff\xfa\x2c\x08\xff\xf0", b"\xff\xfa\x2c\x09\xff\xf0"


@asynccontextmanager
async def bridging(line: MemoryLine | None = None, **options: object) -> AsyncIterator[tuple[MemoryLine, Bridge]]:
    """A bridge in front of a line in memory, and that line."""
    device = line or MemoryLine()
    async with asyncio.timeout(60), bridged(device, **options) as bridge:
        yield device, bridge


class BridgeClient:
    """A tool at one of the bridge's ports; on the RFC 2217 port, its data are unescaped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str) -> None:
        self.reader = reader
        self.writer = writer
        self._telnet = Rfc2217Client() if kind == "rfc2217" else None

    @property
    def name(self) -> str:
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    async def send(self, data: bytes) -> None:
        self.writer.write(data if self._telnet is None else self._telnet.take() + self._telnet.encode(data))
        await self.writer.drain()

    async def receive(self) -> bytes:
        """Some data; none at the end."""
        while data := await self.reader.read(1 << 18):
            if self._telnet is None:
                return data
            self._telnet.feed(data)
            self.writer.write(self._telnet.take())
            if plain := self._telnet.read():
                return plain
        return b""

    async def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := await self.receive()):
            data += more
        return data

    async def read_until(self, mark: bytes) -> None:
        data = b""
        while mark not in data:
            data = data[-len(mark) :] + (more := await self.receive())
            assert more, f"ended before {mark!r}"

    async def rest(self) -> bytes:
        data = b""
        while more := await self.receive():
            data += more
        return data

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def reset(self) -> None:
        """Go without a goodbye."""
        stream = self.writer.get_extra_info("socket")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def connect(bridge: Bridge, kind: str) -> BridgeClient:
    reader, writer = await asyncio.open_connection("127.0.0.1", getattr(bridge.ports, kind), limit=1 << 18)
    return BridgeClient(reader, writer, kind)


async def writing(bridge: Bridge, kind: str) -> BridgeClient:
    """A client that has the device, for certain: its echo came back."""
    client = await connect(bridge, kind)
    await client.send(b"hello")
    assert await client.exactly(5) == b"hello"
    return client


async def seen(line: MemoryLine, viewer: BridgeClient, mark: bytes) -> None:
    """Wait until the viewer sees what the device says."""
    waiting = asyncio.create_task(viewer.read_until(mark))
    while not waiting.done():
        line.say(mark)
        await asyncio.sleep(0)


async def refused(client: BridgeClient) -> bool:
    await client.send(b"?")
    answer = await client.exactly(1)
    return answer != b"?"
