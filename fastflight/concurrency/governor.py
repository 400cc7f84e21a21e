"""One cap over the bytes that wait in a process: in hand-offs, hand-ins and gatherings, whoever is slow.

Each of these has an `Account` and says there what it holds. How much it may hold is a part of what is free at the
moment: the dynamic threshold of switches with a shared memory. While little waits anywhere, a slow reader may have all
that its own limit allows; the more there are, the less each of them may have, and something stays free for those that
come. Nothing is taken back: who holds more than its share now takes no more on until its reader has taken.

A hand-off may always hold one item, so none can stand still for want of memory, and the cap may be passed by one item
for each. Holding is told in steps of `STEP_BYTES`, and looking what is free is one subtraction: small batches
pay next to nothing.
"""

from __future__ import annotations

import threading

# A share worth having: some joined messages. A stream that came when less is free would only add to the crowd.
LEAST_BYTES = 1_000_000
# The least cap: below, a single reader of large batches would be one too many.
MIN_MEMORY_BYTES = 16_000_000
# Its share is what a hand-off may have by itself: one slow reader is not held back by it. Small beside what a computer
# has that serves many; no part of the computer's memory, so that a server behaves the same wherever it is tried.
DEFAULT_MEMORY_BYTES = 512_000_000
# Of what is free, one account may hold this part. Of clients that stop reading, one after the other, each takes as much
# of what the others left: after so many a third is left, after four times as many a fiftieth.
SHARE = 64
# What an account may hold without telling: less than a joined message, more than many small batches.
STEP_BYTES = 128 * 1024


class Governor:
    """So many bytes, for all accounts together."""

    def __init__(self, limit: int = DEFAULT_MEMORY_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.most = 0
        self._lock = threading.Lock()

    @property
    def scarce(self) -> bool:
        """Whether there is no share left for one that comes now."""
        return self.limit - self.held < LEAST_BYTES

    def account(self) -> Account:
        """For one that holds bytes. It holds none yet."""
        return Account(self)

    def stats(self) -> dict[str, int]:
        """Bytes: the limit, what is held now, and the most that ever was."""
        return {"limit": self.limit, "held": self.held, "most": self.most}

    def move(self, more: int) -> None:
        """So many bytes are held now that were not, or fewer."""
        with self._lock:
            self.held += more
            if self.held > self.most:
                self.most = self.held


class Account:
    """What one holds. Guarded by whatever guards that."""

    __slots__ = ("_governor", "_told")

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._told = 0

    def hold(self, held: int) -> bool:
        """It holds so many bytes now, none at its end. False when it should not take more on."""
        governor = self._governor
        more = held - self._told
        if more >= STEP_BYTES or more <= -STEP_BYTES or (more and not held):
            governor.move(more)
            self._told = held
        return held * SHARE <= governor.limit - governor.held


# For those whose memory is somebody else's concern: a client's, a test's.
UNGOVERNED = Governor(1 << 62)
