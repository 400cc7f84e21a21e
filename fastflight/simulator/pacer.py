"""The schedule of a serial line's bytes. It only computes times; the caller waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Bits on the wire per byte: one start bit, eight data bits, one stop bit.
BITS_PER_BYTE = 10
# The step in which a line moves bytes. Finer steps cost more than they gain: a USB adapter delays bytes by 1 to 16 ms.
SLICE_SECONDS = 0.001


class Pacer:
    """Computes how many bytes a line of `rate` bytes per second can move now.

    The schedule is absolute: after a late wake-up the next step moves more bytes, so the average rate is exact. Call
    `begin` before each burst, because an idle line does not save up time. Then repeat: ask `due`, report the bytes with
    `moved`, and wait until `next_at`. `fifo` is the size of the sender's transmit buffer, which keeps the line busy for
    a while after a burst.
    """

    def __init__(self, rate: float, *, fifo: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.fifo = fifo
        self.slice = max(1, int(rate * SLICE_SECONDS))
        self._clock = clock
        self._start = clock()
        self._moved = 0

    def begin(self, since: float | None = None, *, ahead: bool = False) -> None:
        """Begin a burst that has been ready since the time `since`; by default, since now.

        `ahead`: since the last burst the sender has only prepared this one, so that its `fifo` still had bytes to send.
        """
        start = self._clock() if since is None else since
        if start >= self._start + (self._moved + (self.fifo if ahead else 0)) / self.rate:
            self._start, self._moved = start, 0

    def due(self) -> int:
        """Return how many bytes the line can move now."""
        return max(0, int((self._clock() - self._start) * self.rate) - self._moved)

    def moved(self, count: int) -> None:
        self._moved += count

    def next_at(self, wanted: int) -> float:
        """Return the time at which `wanted` bytes, or one slice if that is less, will be due."""
        count = self._moved + min(wanted, self.slice)
        # A fraction of a byte more, because rounding could otherwise leave the last byte not due at that time.
        return self._start + (count + 0.01) / self.rate
