"""Reads a number of bytes, or up to a mark, from a port: in a thread, or (`a...`) on an event loop."""

from __future__ import annotations

from fastflight.transport import Port
from tests.support import waiting

# Far longer than any answer takes: a test that waits for it has failed.
PATIENCE = 20.0


def read_exactly(port: Port, count: int) -> bytes:
    """Read until `count` bytes have arrived. Bytes beyond them are returned too, so that a test notices them."""
    data = b""
    while len(data) < count:
        data += port.read(PATIENCE)
    return data


async def aread_exactly(port: Port, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += await port.aread(PATIENCE)
    return data


def read_until(port: Port, mark: bytes) -> bytes:
    """Read until `mark` has arrived. Bytes behind it are returned too."""
    return waiting.read_until(lambda: port.read(PATIENCE), mark)


async def aread_until(port: Port, mark: bytes) -> bytes:
    return await waiting.aread_until(lambda: port.aread(PATIENCE), mark)
