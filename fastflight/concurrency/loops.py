"""Which event loop a shard runs (docs/decisions/0022 has the figures), how tasks share it, how threads call it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping


def asyncio_loop() -> asyncio.AbstractEventLoop:
    """The standard library's, of the kind that can watch descriptors, which is how ports wait."""
    return asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()


def uv_loop() -> asyncio.AbstractEventLoop:
    """libuv's: uvloop, or winloop on Windows."""
    if sys.platform == "win32":
        import winloop as uv
    else:
        import uvloop as uv
    return uv.new_event_loop()


# What they are called in statistics and in measurements.
KINDS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio_loop, "uvloop": uv_loop}


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop for this platform. libuv's was not measured on Windows, so it is not chosen there."""
    return asyncio_loop() if sys.platform == "win32" else uv_loop()


def kind_of(loop: asyncio.AbstractEventLoop) -> str:
    """The package that the loop is from: `asyncio`, `uvloop` or `winloop`."""
    return type(loop).__module__.partition(".")[0]


# A loop that does not run a callback within this time is stuck, and `run_on_loop` stops waiting for it.
STUCK_LOOP_SECONDS = 2.0

# For how long a coroutine may keep its loop: short beside what a request waits for anyway, long beside a round of the
# loop.
TURN_SECONDS = 0.01


def run_on_loop(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Call `act` on `loop`, from any thread, and return when that is done. Calls it here if `loop` does not run."""
    if loop.is_closed() or not loop.is_running() or runs_here(loop):
        act()
        return
    done = threading.Event()

    def act_there() -> None:
        act()
        done.set()

    with contextlib.suppress(RuntimeError):  # closed meanwhile, and its watches with it
        loop.call_soon_threadsafe(act_there)
        done.wait(STUCK_LOOP_SECONDS)


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is on `loop`."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class Turn:
    """For how long a coroutine has kept its loop.

    A coroutine that takes items which are there already, and need not wait to pass them on, never suspends by itself:
    the loop's other tasks would wait for as long as its source is ahead.
    """

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the other tasks should run now."""
        return time.monotonic() - self._began >= TURN_SECONDS

    async def leave(self) -> None:
        """Let the other tasks run once, and begin another turn."""
        await asyncio.sleep(0)
        self._began = time.monotonic()
