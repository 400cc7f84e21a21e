"""How old something is, by a clock that somebody may set.

Ages come from the time of day, since a recording outlives the process that made it. But a clock that jumps a year
ahead would make all of it a year old, and what is let go of does not come back when the clock does. So an age counts
only once the clock has gone steadily, beside one that nobody can set, for `STEADY_SECONDS`: long enough for the system
to correct itself, or for whoever mistyped a date to notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A computer without a clock of its own is told the time some minutes after its start, if not seconds.
STEADY_SECONDS = 600.0
# Slewing, as the system does it to correct a clock, is 0.05 %: a fraction of this between two looks a minute apart.
STEP_SECONDS = 10.0


class Ages:
    """Tell `look` now and then what time it is; ask `count` before an age has something let go of."""

    def __init__(self, clock: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ticks = ticks
        self._seen = clock(), ticks()
        self._steady_since = self._seen[1]

    def look(self) -> None:
        """See whether the clock was set since the last look."""
        before, (now, ticks) = self._seen, (self._clock(), self._ticks())
        self._seen = now, ticks
        if abs((now - before[0]) - (ticks - before[1])) > STEP_SECONDS:
            self._steady_since = ticks

    @property
    def count(self) -> bool:
        """Whether ages can be trusted so far that something may be let go of for its age."""
        return self._seen[1] - self._steady_since >= STEADY_SECONDS
