"""How many entries a server stores at the same time, so that the renewal of its lease does not wait behind them.

All servers store in one bucket, which takes one entry after another and writes each to the disk. What a server sends
waits behind what all have sent. So each sends more while answers come quickly, and less when they take long, as senders
on a network do. No I/O and no clock.
"""

from __future__ import annotations

MAX_PUTS = 64
FIRST_PUTS = 4
# Answers are quick up to this time, and slow from that one on. A renewal has a few seconds.
QUICK_SECONDS, SLOW_SECONDS = 0.1, 0.25
# With each quick answer, and with slow ones: at most once in the time that an answer takes.
GROWTH, SHRINKAGE = 0.5, 0.5


class Pace:
    """The number of requests that may be under way: `allowed`."""

    def __init__(self) -> None:
        self._size = float(FIRST_PUTS)
        self._shrunk_at = float("-inf")

    @property
    def allowed(self) -> int:
        return int(self._size)

    def answered(self, sent: float, now: float) -> None:
        """A request that was sent at the time `sent` has its answer, or has failed."""
        if now - sent <= QUICK_SECONDS:
            self._size = min(float(MAX_PUTS), self._size + GROWTH)
        elif now - sent >= SLOW_SECONDS and sent >= self._shrunk_at:
            self._size = max(1.0, self._size * SHRINKAGE)
            self._shrunk_at = now
