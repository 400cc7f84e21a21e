"""When the recorders of one event loop take what is there: all at the same moments, again and again.

A timer for each recorder would wake the loop for each row of each board, and each would have a sync of its own. So
recorders wait for the next round, in which only those with something to take go on. The loops of a process have their
rounds at the same time: what a thousand boards have sent since the last one is one group of appends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Shorter rounds would keep the loop busy.
MIN_SECONDS = 0.01


class Rounds:
    """A round every `seconds`. Use it on one event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._period = max(seconds, MIN_SECONDS)
        self._waiting: dict[asyncio.Event, Callable[[], bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, arrived: asyncio.Event, is_due: Callable[[], bool]) -> None:
        """Return when `arrived` is set, or in the first round in which `is_due()` is true or raises."""
        self._waiting[arrived] = is_due
        self._schedule()
        try:
            await arrived.wait()
        finally:
            del self._waiting[arrived]

    def _schedule(self) -> None:
        if self._timer is None and self._waiting:
            delay = self._period - time.monotonic() % self._period
            self._timer = asyncio.get_running_loop().call_later(delay, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._schedule()
        for arrived, is_due in self._waiting.items():
            try:
                is_ready = is_due()
            except Exception:  # its own recorder meets it again; the others of the loop go on
                is_ready = True
            if is_ready:
                arrived.set()
