"""What somebody has for as long as they use it, or until somebody else wants it.

People leave a terminal open. While nobody else asks they may; who asks is let in when the holder has not used what it
has for `idle_seconds`. Nothing runs for this: it is looked at when somebody asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Tenure:
    """One holder's. `leave` is called, once, when it is to go, with the seconds that it has been idle for."""

    def __init__(
        self, idle_seconds: float, leave: Callable[[float], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.idle_seconds = idle_seconds
        self._leave = leave
        self._clock = clock
        self._lock = threading.Lock()
        self._used = clock()
        self._over = False

    def use(self) -> None:
        """It is in use now. From any thread."""
        self._used = self._clock()

    def left(self) -> float:
        """Seconds until the holder may be asked to go, if it sends nothing. From any thread."""
        return max(0.0, self.idle_seconds - (self._clock() - self._used))

    def wanted(self) -> float:
        """Somebody else asks: how long the holder may still be idle. 0 when it is to go. From any thread."""
        with self._lock:
            idle = self._clock() - self._used
            if idle < self.idle_seconds and not self._over:
                return self.idle_seconds - idle
            first, self._over = not self._over, True
        if first:
            self._leave(idle)
        return 0.0
