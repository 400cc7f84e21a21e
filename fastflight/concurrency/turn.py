"""Leaving an event loop to its other tasks, for a coroutine that may never have to wait.

Who takes items that are there already does not suspend by taking them. Where it need not wait to pass them on either,
it has the loop for as long as its source is ahead: nobody else is served, and that its reader has left is not noticed.
"""

from __future__ import annotations

import asyncio
import time

# Before it leaves the loop to others: short beside what a request waits for anyway, long beside a round of the loop.
TURN_SECONDS = 0.01


class Turn:
    """Since when a coroutine has had its loop."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether it is for others now."""
        return time.monotonic() - self._began >= TURN_SECONDS

    async def leave(self) -> None:
        """Leave the loop to others once, and begin another turn."""
        await asyncio.sleep(0)
        self._began = time.monotonic()
