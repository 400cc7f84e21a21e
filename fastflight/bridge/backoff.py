"""How long to wait before the next attempt: longer each time, up to a cap, and never in step with others."""

from __future__ import annotations

import random
from collections.abc import Callable

# A board that resets its own USB is back within this; asking at once would find the port half gone.
FIRST_SECONDS = 0.25
GROWTH = 2.0
# Somebody who plugs a board back in, or starts it again, waits at most this long; asking once in two seconds costs a
# list of ports or a refused connection, and nothing that shows.
CAP_SECONDS = 2.0
# The boards of one hub go away together: this part of each wait is left to chance, so that they do not come back so.
JITTER = 0.25


class Backoff:
    """The waits between attempts, from `first` to `cap` seconds. `chance` gives a number from 0 to 1."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        cap: float = CAP_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = self._seconds = first
        self._cap = cap
        self._chance = chance

    def next(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        seconds, self._seconds = self._seconds, min(self._seconds * GROWTH, self._cap)
        return seconds * (1 - JITTER * self._chance())

    def reset(self) -> None:
        """It worked: begin with a short wait the next time."""
        self._seconds = self._first
