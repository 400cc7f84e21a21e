"""Waiting on an event loop until a descriptor can be read or written, without reading or writing it.

A timeout cancels what it waits for, and a cancelled `sock_recv` may have taken bytes already: they would be lost. So
ports wait here, where nothing is taken, and then read without waiting.

Needs a loop that watches descriptors: any but Windows' proactor loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def readable(descriptor: int, timeout: float) -> None:
    """Return when `descriptor` can be read; `TimeoutError` after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    await _ready(loop.add_reader, loop.remove_reader, descriptor, timeout)


async def writable(descriptor: int, timeout: float) -> None:
    """Return when `descriptor` can be written; `TimeoutError` after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    await _ready(loop.add_writer, loop.remove_writer, descriptor, timeout)


async def _ready(
    register: Callable[..., None], unregister: Callable[[int], bool], descriptor: int, timeout: float
) -> None:
    ready = asyncio.get_running_loop().create_future()
    register(descriptor, _settle, ready)
    try:
        async with asyncio.timeout(timeout):
            await ready
    finally:
        unregister(descriptor)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
