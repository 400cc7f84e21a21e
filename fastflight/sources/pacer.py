"""The pace of a source that takes a time for each batch.

It needs the standard library alone: the benchmark gives the same pace to servers that run where fastflight is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class BatchPacer:
    """Turns "this much time per batch" into sleeps whose sum is exact.

    A sleep takes longer than asked for. What one took too long is taken off the next: after n batches of `seconds`
    each, the time slept is n * `seconds`, and at most one oversleep more.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._overslept = 0.0
        self._begun = 0.0
        self._asked = 0.0

    def begin(self, seconds: float) -> float:
        """A batch that takes `seconds` is asked for: how long to sleep now. Call `end` after the sleep."""
        self._begun = self._clock()
        self._asked = seconds
        return max(0.0, seconds - self._overslept)

    def end(self) -> None:
        """The sleep is over: carry what it took too long, or what was not slept because of an earlier one."""
        self._overslept += self._clock() - self._begun - self._asked
