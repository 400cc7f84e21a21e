"""What a source listed last, for another that would ask the same of the same devices a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

# One list_flights asks its sources one after another: what the first found of the devices is good for the next.
FRESH_SECONDS = 5.0


class Listed(Generic[T]):
    """A listing that is remembered for a moment."""

    def __init__(self, listing: Callable[[], Iterator[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._listing = listing
        self._clock = clock
        self._last: tuple[float, Sequence[T]] | None = None

    def now(self) -> Iterator[T]:
        """List, and remember it if it comes to its end."""
        found: list[T] = []
        for each in self._listing():
            found.append(each)
            yield each
        self._last = self._clock(), found

    def lately(self) -> Sequence[T]:
        """What was listed within `FRESH_SECONDS`, or else is now."""
        last = self._last
        if last is not None and self._clock() - last[0] <= FRESH_SECONDS:
            return last[1]
        return list(self.now())
