"""What several producers have given and one consumer has not taken: bounded by bytes in all, and in one of two orders.

With a `governor`, by fewer bytes where memory is scarce. `ordered`, the items come producer by producer, each in its
turn; otherwise as they came. No waiting and no locks: the two adapters, `Gather` for threads and `AsyncGather` for an
event loop, bring those.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Generic, TypeVar

from fastflight.concurrency.governor import UNGOVERNED, Governor

T = TypeVar("T")


class Gathered(Generic[T]):
    """Items of producers 0 to `producers` - 1. They must begin in this order, so that whose turn it is has begun."""

    def __init__(self, producers: int, max_bytes: int, ordered: bool, governor: Governor = UNGOVERNED) -> None:
        self._producers = producers
        self._max_bytes = max_bytes
        self._ordered = ordered
        self._waiting: defaultdict[int, deque[tuple[T, int]]] = defaultdict(deque)
        self._ended: set[int] = set()
        self._bytes = 0
        self._account = governor.account()
        self._has_share = True
        # Whose items come next. Without an order all share one queue.
        self._turn = 0

    @property
    def done(self) -> bool:
        """Whether all producers have ended, and all was taken."""
        return len(self._ended) == self._producers and not any(self._waiting.values())

    def has_room(self, producer: int) -> bool:
        """Whether `producer` may add now. One whose turn it is always may add an item: the others wait for its end."""
        if not self._bytes or (self._has_share and self._bytes < self._max_bytes):
            return True
        return self._ordered and producer == self._turn and not self._waiting[producer]

    def add(self, producer: int, item: T, size: int) -> None:
        """An item of `size` bytes."""
        self._waiting[producer if self._ordered else 0].append((item, size))
        self._bytes += size
        self._has_share = self._account.hold(self._bytes)

    def end(self, producer: int) -> None:
        """There are no more items of `producer`."""
        self._ended.add(producer)

    def take(self) -> list[T]:
        """The next item, if there is one now."""
        while self._ordered and self._turn in self._ended and not self._waiting[self._turn]:
            del self._waiting[self._turn]
            self._turn += 1
        waiting = self._waiting[self._turn]
        if not waiting:
            return []
        item, size = waiting.popleft()
        self._bytes -= size
        self._has_share = self._account.hold(self._bytes)
        return [item]

    def close(self) -> None:
        """Nobody takes any more."""
        self._waiting.clear()
        self._account.hold(0)
