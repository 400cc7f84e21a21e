"""A timer on an event loop that is set anew far more often than it rings.

Setting it later, or clearing it, costs no work on the loop: it rings at the old time, sees that it is early, and sets
itself again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `act` once when the time that was set last has come. Used on its loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._when: float | None = None
        # A timer, and when it rings: uvloop gives none that could be asked for a time that has come already.
        self._handle: asyncio.Handle | None = None
        self._rings = 0.0

    @property
    def is_set(self) -> bool:
        """It is going to ring."""
        return self._when is not None

    def set(self, delay: float) -> None:
        """Ring in `delay` seconds, and at no other time."""
        self._when = self._loop.time() + delay
        if self._handle is None or self._rings > self._when:
            self._start()

    def clear(self) -> None:
        """Do not ring."""
        self._when = None

    def cancel(self) -> None:
        """Do not ring, and leave nothing on the loop."""
        self._when = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        assert self._when is not None
        self._rings = self._when
        self._handle = self._loop.call_at(self._when, self._ring, self._when)

    def _ring(self, when: float) -> None:
        self._handle = None
        if self._when is None:
            return
        if when < self._when:
            self._start()
            return
        self._when = None
        self._act()
