"""How often something may be done: so often in one go, and then so often a second."""

from __future__ import annotations

from collections.abc import Callable


class Allowance:
    """`at_once`, filled up again by `per_second`. `clock` gives seconds."""

    def __init__(self, at_once: int, per_second: float, clock: Callable[[], float]) -> None:
        self._most = at_once
        self._per_second = per_second
        self._clock = clock
        self._left = float(at_once)
        self._then = clock()

    def take(self) -> bool:
        """Whether it may be done now; if so, that is one less."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._then) * self._per_second)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
