"""Reads a board's output while nobody has the board.

`Device.listen` runs `listen` on the device's loop. What is read goes to the tap of the line. The task holds the
device's lock while it reads, and gives it up between two reads when somebody else asks, so that no byte is lost. A line
that fails is given to `abandon` and opened again, with a growing delay. An error that is no `TransportError` is a
defect of ours: it is logged and treated the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

import structlog

from fastflight.concurrency import Exclusive
from fastflight.errors import TransportError
from fastflight.transport.tapped import TappedPort

log = structlog.get_logger(__name__)

# How others are told of it, should it not give way.
HOLDER = "a listener"
# A board that was reset is back within a second or two; one that was put away may stay away for days.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# A line that is lost sooner than this after it was opened is tried again as slowly as one that cannot be opened.
STABLE_SECONDS = 10.0


async def listen(
    lock: Exclusive, opened: Callable[[], Awaitable[TappedPort]], abandon: Callable[[TransportError], Awaitable[None]]
) -> None:
    """Until cancelled. `opened` gives the open line, `abandon` is told how it failed; both run under `lock`."""
    clock = asyncio.get_running_loop().time
    retry = FIRST_RETRY_SECONDS
    while True:
        async with lock.aheld_until_wanted(HOLDER) as wanted:
            stood = math.inf
            try:
                port = await opened()
                stood = clock()
                await _until(wanted, port.alisten())
                continue
            except TransportError as error:
                failure = error
            except Exception as error:  # the task's edge: nobody else would learn of it
                failure = TransportError.unexpected(error)
                log.exception("reading a line failed", device=lock.where)
            if clock() - stood >= STABLE_SECONDS:
                retry = FIRST_RETRY_SECONDS
            try:
                await abandon(failure)
            except Exception:  # closing what has failed may fail as well
                log.exception("closing a line failed", device=lock.where)
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
