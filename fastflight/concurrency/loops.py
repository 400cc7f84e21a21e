"""Chooses the event loop of a shard, and shares it among tasks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping


def asyncio_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the standard library that can watch file descriptors, because ports wait in that way."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def uv_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of libuv: uvloop, or winloop on Windows."""
    if sys.platform == "win32":
        import winloop as uv
    else:
        import uvloop as uv
    return uv.new_event_loop()


# The names of the loops in statistics and measurements.
KINDS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio_loop, "uvloop": uv_loop}


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the loop for this platform: libuv's, except on Windows, where it was not measured."""
    return asyncio_loop() if sys.platform == "win32" else uv_loop()


def kind_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return the package of the loop: `asyncio`, `uvloop` or `winloop`."""
    return type(loop).__module__.partition(".")[0]


# How long a coroutine may keep its loop: short compared with the other delays of a request, long compared with one
# round of the loop.
TURN_SECONDS = 0.01


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs on `loop`."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class Turn:
    """Measures how long a coroutine has kept its loop.

    A coroutine that passes items on does not suspend while its source has items ready, so the loop's other tasks would
    wait. It must check `over` after each item, and await `leave` when that is True.
    """

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the other tasks should run now."""
        return time.monotonic() - self._began >= TURN_SECONDS

    async def leave(self) -> None:
        """Let the other tasks run once, and begin a new turn."""
        await asyncio.sleep(0)
        self._began = time.monotonic()
