"""Reading a board's output while nobody has the board and somebody wants to see it.

What is read goes nowhere but to the tap on the line. The reading gives way to whoever wants the device, between two
reads, so that nothing is lost; while the line cannot be opened it is tried again, ever more slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from fastflight.concurrency import Exclusive
from fastflight.errors import TransportError
from fastflight.transport.tapped import TappedPort

# How others are told of it, should it not give way.
HOLDER = "a listener"
# A board that was reset is back within a second or two; one that was put away may stay away for days.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0


async def listen(
    lock: Exclusive, opened: Callable[[], Awaitable[TappedPort]], abandon: Callable[[TransportError], Awaitable[None]]
) -> None:
    """Until cancelled. `opened` gives the open line, `abandon` is told how it failed; both run under `lock`."""
    retry = FIRST_RETRY_SECONDS
    while True:
        async with lock.aheld_until_wanted(HOLDER) as wanted:
            try:
                port = await opened()
                retry = FIRST_RETRY_SECONDS
                await _until(wanted, port.alisten())
            except TransportError as error:
                await abandon(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(retry):
                        await wanted.wait()
                retry = min(retry * 2, LAST_RETRY_SECONDS)


async def _until(wanted: asyncio.Event, reading: Awaitable[None]) -> None:
    """Await `reading` until it fails or the event is set."""
    tasks = asyncio.ensure_future(reading), asyncio.ensure_future(wanted.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
