"""Decides whether a store has exceeded its retention: the limits of age and size.

The age of a recording comes from the time of day, because a recording outlives the process that made it. If the clock
jumps a year ahead, all recordings seem a year old, and retention would delete them for good. So an age counts only
after the clock has kept pace with the monotonic clock for `STEADY_SECONDS`. This is enough for the system to correct
its clock, or for a person to notice a mistyped date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# A computer without a battery-backed clock gets the time seconds, or at most some minutes, after its start.
STEADY_SECONDS = 600.0
# A larger difference between the clocks means that the clock was set. The system slews a clock by 0.05 %, which is a
# fraction of this between two updates a minute apart.
STEP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of age and size, above which a store deletes its oldest rows; None means no limit.

    A store deletes what was appended together, or one Parquet file, at a time. So it keeps a little less than
    `max_bytes`.
    """

    max_seconds: float | None = None
    max_bytes: int | None = None


class RetentionCheck:
    """Call `update` about once a minute. `clock` is the time of day in seconds, `ticks` a monotonic clock."""

    def __init__(self, limits: Retention, clock: Callable[[], float], ticks: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._ticks = ticks
        self._last = clock(), ticks()
        self._steady_since = self._last[1]

    def update(self) -> None:
        """Compare both clocks, to find out whether the clock was set since the last call."""
        before, (now, ticks) = self._last, (self._clock(), self._ticks())
        self._last = now, ticks
        if abs((now - before[0]) - (ticks - before[1])) > STEP_SECONDS:
            self._steady_since = ticks

    @property
    def max_bytes(self) -> int | None:
        """The limit of size, if there is one."""
        return self._limits.max_bytes

    @property
    def now(self) -> int:
        """The time of day, in us UTC."""
        return int(self._clock() * 1e6)

    def oldest(self) -> float | None:
        """Return the time (seconds since 1970) before which rows are too old. None if age does not count now."""
        max_seconds = self._limits.max_seconds
        if max_seconds is None or self._last[1] - self._steady_since < STEADY_SECONDS:
            return None
        return self._clock() - max_seconds


def end_of_first(created: Sequence[int], now: int) -> int:
    """Return a time at which all rows of the first body were written, from the creation times of bodies in order.

    That is the creation of the next body, or of a later one if the clock was wrong at that: if its creation time is in
    the future, before that of the first body, or unknown (0). If all are, it is `now`.
    """
    begin = created[0] if created[0] <= now else 0
    return next((each for each in created[1:] if max(begin, 1) <= each <= now), now)
