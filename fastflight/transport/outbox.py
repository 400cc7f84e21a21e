"""Bytes that were accepted for a line and not taken by the system yet, in order.

`put` them; `lend` the first ones to whoever talks to the system, who then says with `settle` how many of these were
taken: the others come first again at the next `lend`. `withdraw` drops what was put since a mark. Bytes that are lent
may still go, but when all was withdrawn nobody waits for them any more, and they do not come again.
One lender and one putter may be in different threads.
"""

from __future__ import annotations

import threading


class Outbox:
    """A queue of bytes that knows how much of it is out of its hands."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._lent = 0
        self._forgotten = False
        self._taken = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting) - (self._lent if self._forgotten else 0)

    @property
    def taken(self) -> int:
        """How many bytes have left it: this grows while there is progress."""
        return self._taken

    def put(self, data: bytes) -> int:
        """Add `data`. Returns the mark at which it begins."""
        with self._lock:
            mark = self._taken + len(self._waiting)
            self._waiting += data
            return mark

    def lend(self, limit: int) -> bytearray:
        """The first bytes, `limit` at most; none when nothing waits. Settle them before the next call."""
        with self._lock:
            chunk = self._waiting[:limit]
            self._lent = len(chunk)
            return chunk

    def settle(self, taken: int) -> None:
        """The system took `taken` of the bytes that were lent."""
        with self._lock:
            left = self._lent if self._forgotten else taken
            self._lent = 0
            self._forgotten = False
            self._taken += left
            del self._waiting[:left]

    def withdraw(self, mark: int = 0) -> int:
        """Drop what was put at `mark` and later, or all. Returns how many those were, of all with the lent."""
        with self._lock:
            keep = max(mark - self._taken, self._lent)
            dropped = max(len(self._waiting) - keep, 0)
            del self._waiting[keep:]
            self._forgotten = self._lent > 0 and mark <= self._taken
            return dropped + (self._lent if self._forgotten else 0)
