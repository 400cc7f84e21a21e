"""How a serial port gathers the small writes of coroutines: `Pacing` has the limits, `Outbox` the waiting bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pacing:
    """Small writes wait until there are `drain` bytes, or for `drain_ms` milliseconds, or until a coroutine reads.

    At most `chunk` bytes go to the system in one call.
    """

    drain: int
    drain_ms: int
    chunk: int


# By `os.name`.
#
# posix: a system call costs about 2 us, so gathering more than a quarter of the line's 4096-byte buffer gains little.
# 50 ms is short for a person, and long for code that sends a frame in pieces. A chunk fills the buffer.
#
# nt: a write is a round trip through the driver, of up to a USB frame, so gather twice as much for twice as long.
PLATFORMS: Mapping[str, Pacing] = {
    "posix": Pacing(drain=1024, drain_ms=50, chunk=4096),
    "nt": Pacing(drain=2048, drain_ms=100, chunk=4096),
}
DEFAULT = PLATFORMS.get(os.name, PLATFORMS["posix"])

# The minimum and maximum of each option of a device URL.
#
# drain: 1 sends each write at once; more than the system's largest buffers only delays.
# drain_ms: 0 sends in the next turn of the loop; a second is longer than most boards wait.
# chunk: with less than 16 bytes, system calls take most of the time; above 64 KiB a write cannot be cancelled in time.
LIMITS: Mapping[str, tuple[int, int]] = {
    "drain": (1, 64 * 1024),
    "drain_ms": (0, 1000),
    "chunk": (16, 64 * 1024),
}


class Outbox:
    """Bytes that were accepted for a line and not yet handed to the system, in order.

    A position counts all bytes ever put. `withdraw` drops the bytes from a position on.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes) -> int:
        """Add `data`. Return the position at which it begins."""
        position = self._taken + len(self._waiting)
        self._waiting += data
        return position

    def take(self, limit: int) -> bytes:
        """Remove and return the first bytes, at most `limit`; empty if nothing waits."""
        chunk = bytes(self._waiting[:limit])
        del self._waiting[:limit]
        self._taken += len(chunk)
        return chunk

    def withdraw(self, position: int = 0) -> None:
        """Drop the bytes from `position` on that still wait."""
        del self._waiting[max(position - self._taken, 0) :]
