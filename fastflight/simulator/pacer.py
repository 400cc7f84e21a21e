"""The pace of a serial line, without waiting for it: a schedule that somebody else keeps to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Bits on the wire per byte: one start bit, eight data bits, one stop bit.
BITS_PER_BYTE = 10
# What a line moves at once: finer wake-ups cost more than they show. (A USB adapter holds bytes for 1 to 16 ms.)
SLICE_SECONDS = 0.001


class Pacer:
    """Says how many bytes a line of `rate` bytes a second has room for now.

    The schedule is absolute: a late wake-up is made up for by the next, so the average is exact. Call `begin` before
    each burst (an idle line saves nothing up), then ask `due`, report `moved`, and wait until `next_at`. A sender with
    a buffer of `fifo` bytes, filled ahead, keeps its line busy for as long as those take after its last burst.
    """

    def __init__(
        self,
        rate: float,
        *,
        fifo: int = 0,
        slice_seconds: float = SLICE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self.fifo = fifo
        self.slice = max(1, int(rate * slice_seconds))
        self._clock = clock
        self._start = clock()
        self._moved = 0

    def begin(self, since: float | None = None, *, ahead: bool = False) -> None:
        """A burst begins; it has been waiting `since` then, which the line would not have.

        `ahead`: its sender did nothing but get it ready since the last one.
        """
        start = self._clock() if since is None else since
        if start >= self._start + (self._moved + (self.fifo if ahead else 0)) / self.rate:
            self._start, self._moved = start, 0

    def due(self) -> int:
        return max(0, int((self._clock() - self._start) * self.rate) - self._moved)

    def moved(self, count: int) -> None:
        self._moved += count

    def next_at(self, wanted: int) -> float:
        """The moment at which `wanted` bytes, or a slice if that is less, will be due."""
        count = self._moved + min(wanted, self.slice)
        # A part of a byte more, lest rounding leave the last byte not due at the very moment that was waited for.
        return self._start + (count + 0.01) / self.rate
