"""Reads a board's output while nobody holds the device.

`Device.listen` runs `listen` on the device's event loop. The bytes go to the tap of the line. The task holds the
device's lock while it reads. When somebody else asks for the lock, the task releases it between two reads, so that no
byte is lost. When the line fails, the task calls `abandon` and opens the line again, after a growing delay. An error
that is not a `TransportError` is a bug in fastflight: it is logged with its traceback and handled in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from fastflight.concurrency import Exclusive
from fastflight.errors import TransportError
from fastflight.lazy import Logger
from fastflight.transport import Port

log = Logger(__name__)

# Named in the `BusyError` that other callers get if the task does not release the lock in time.
HOLDER = "a listener"
# A board that was reset is back within a second or two; one that was unplugged may stay away for days.
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
# Looking for a port of this computer costs little, and a person who plugs the cable in again watches the screen.
LOCAL_RETRY_SECONDS = 2.0
# A line that is lost sooner than this after it was opened does not reset the delay.
STABLE_SECONDS = 10.0


async def listen(
    lock: Exclusive,
    ensure_open: Callable[[], Awaitable[Port]],
    abandon: Callable[[TransportError], Awaitable[None]],
    *,
    is_local: bool = False,
) -> None:
    """Read the line until cancelled.

    `ensure_open` returns the open line, `abandon` closes it after the error that it gets. Both run under `lock`.
    `is_local`: the line is a port of this computer, so it is looked for more often.
    """
    clock = asyncio.get_running_loop().time
    last_retry = LOCAL_RETRY_SECONDS if is_local else LAST_RETRY_SECONDS
    first_retry = retry = min(FIRST_RETRY_SECONDS, last_retry)
    while True:
        async with lock.aheld_until_wanted(HOLDER) as wanted:
            opened_at = math.inf
            try:
                port = await ensure_open()
                opened_at = clock()
                await _read_until(wanted, port.alisten())
                continue
            except TransportError as error:
                failure = error
            except Exception as error:  # the edge of the task: nobody else would see the error
                failure = TransportError.unexpected(error)
                log.exception("reading a line failed", device=lock.where)
            if clock() - opened_at >= STABLE_SECONDS:
                retry = first_retry
            try:
                await abandon(failure)
            except Exception:  # closing a broken line may fail as well
                log.exception("closing a line failed", device=lock.where)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry):
                    await wanted.wait()
            retry = min(retry * 2, last_retry)


async def _read_until(wanted: asyncio.Event, reading: Awaitable[None]) -> None:
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
