"""Decides whether ages by the system clock, which may be set, can be trusted.

The age of a recording comes from the time of day, because a recording outlives the process that made it. If the clock
jumps a year ahead, all recordings seem a year old, and retention would delete them for good. So an age counts only
after the clock has kept pace with the monotonic clock for `STEADY_SECONDS`. This is enough for the system to correct
its clock, or for a person to notice a mistyped date.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A computer without a battery-backed clock gets the time seconds, or at most some minutes, after its start.
STEADY_SECONDS = 600.0
# A larger difference between the clocks means that the clock was set. The system slews a clock by 0.05 %, which is a
# fraction of this between two updates a minute apart.
STEP_SECONDS = 10.0


class Ages:
    """Call `update` now and then, and check `trusted` before something is deleted because of its age.

    `clock` is the time of day in seconds, which may be set. `ticks` is a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic) -> None:
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
    def trusted(self) -> bool:
        """Whether the clock has been steady for long enough to delete something because of its age."""
        return self._last[1] - self._steady_since >= STEADY_SECONDS
