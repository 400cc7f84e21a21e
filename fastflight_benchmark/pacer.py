"""Keeps a source at a pace: a given time for each batch.

This module needs only the standard library: the benchmark also uses it in servers that run without fastflight.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchPacer:
    """Turns a time per batch into sleeps whose sum is exact.

    A sleep takes longer than requested. The excess of one sleep is taken off the next: after n batches of `seconds`
    each, the total is n * `seconds`, plus the excess of at most one sleep.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._overslept = 0.0
        self._start = 0.0
        self._requested = 0.0

    def begin(self, seconds: float) -> float:
        """Begin a batch that shall take `seconds`. Returns how long to sleep; call `end` after that sleep."""
        self._start = self._clock()
        self._requested = seconds
        return max(0.0, seconds - self._overslept)

    def end(self) -> None:
        """Measure the sleep, and carry the difference to the requested time over to the next one."""
        self._overslept += self._clock() - self._start - self._requested
