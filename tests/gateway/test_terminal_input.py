"""What somebody types, on its way to a device."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from fastflight.concurrency import Channel
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.ws.terminal_input import MAX_INPUT_BYTES, TerminalInput, forwarding


def test_what_is_typed_comes_in_order_and_is_bounded() -> None:
    async def run() -> list[bytes]:
        typed = TerminalInput()
        typed.put(bytes(MAX_INPUT_BYTES - 1))
        with pytest.raises(HttpRefusal, match="wait for the device already"):
            typed.put(b"ab")
        typed.put(b"a")
        typed.end()
        return [data async for data in typed]

    assert asyncio.run(run()) == [bytes(MAX_INPUT_BYTES - 1), b"a"]


def test_messages_of_nothing_do_not_wait() -> None:
    async def run() -> list[bytes]:
        typed = TerminalInput()
        for _ in range(3):
            typed.put(b"")
        typed.end()
        return [data async for data in typed]

    assert asyncio.run(run()) == []


def test_single_keys_that_wait_for_the_device_are_few() -> None:
    """Each is a batch, which takes a kilobyte."""
    put: list[int] = []

    class Noting(Channel[pa.RecordBatch]):
        async def aput(self, item: pa.RecordBatch, size: int) -> None:
            put.append(size)

    async def keys() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"a"

    async def run() -> None:
        channel = Noting(MAX_INPUT_BYTES)
        async with forwarding(keys(), channel):
            async for _ in channel:
                pass

    asyncio.run(run())
    assert len(put) == 3
    assert min(put) > 900
