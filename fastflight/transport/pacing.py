"""How a serial port gathers the small writes of coroutines: the sizes and times, and the bytes that wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pacing:
    """Small writes wait until `drain` bytes or `drain_ms` milliseconds are together, or somebody waits for an answer.

    At most `chunk` bytes go to the system in one call.
    """

    drain: int
    drain_ms: int
    chunk: int


# By `os.name`.
#
# posix: a system call costs about 2 us, so little is won by gathering more than a quarter of the line's 4096-byte
# buffer, and 50 ms is short beside a person and long beside code that sends its frame in pieces. A chunk fills that
# buffer.
#
# nt: a write is a round trip through the driver, of up to a USB frame: gather twice as much for twice as long.
PLATFORMS: Mapping[str, Pacing] = {
    "posix": Pacing(drain=1024, drain_ms=50, chunk=4096),
    "nt": Pacing(drain=2048, drain_ms=100, chunk=4096),
}
DEFAULT = PLATFORMS.get(os.name, PLATFORMS["posix"])

# What a device URL may ask for: least and most.
#
# drain: 1 sends each write at once; more than the system's own largest buffers only delays.
# drain_ms: 0 sends at the loop's next turn; a second is already longer than most boards' patience.
# chunk: below 16 bytes system calls are all there is; above 64 KiB a thread could not be called back in time.
LIMITS: Mapping[str, tuple[int, int]] = {
    "drain": (1, 64 * 1024),
    "drain_ms": (0, 1000),
    "chunk": (16, 64 * 1024),
}


class Outbox:
    """Bytes that were accepted for a line and that the system does not have yet, in order. Thread-safe.

    A position counts the bytes that were ever put. `withdraw` drops the bytes from a position on.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._taken = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, data: bytes) -> int:
        """Add `data`. Returns the position at which it begins."""
        with self._lock:
            position = self._taken + len(self._waiting)
            self._waiting += data
            return position

    def first(self, limit: int) -> bytes:
        """The first bytes, `limit` at most; none when nothing waits."""
        return bytes(self._waiting[:limit])

    def drop(self, count: int) -> None:
        """The system has taken the first `count` bytes."""
        with self._lock:
            del self._waiting[:count]
            self._taken += count

    def take(self, limit: int) -> bytes:
        """`first` and `drop` in one, for a thread that others `withdraw` from."""
        with self._lock:
            chunk = bytes(self._waiting[:limit])
            del self._waiting[:limit]
            self._taken += len(chunk)
            return chunk

    def withdraw(self, position: int = 0) -> int:
        """Drop the bytes from `position` on that are still here. Returns how many those were."""
        with self._lock:
            kept = max(position - self._taken, 0)
            dropped = max(len(self._waiting) - kept, 0)
            del self._waiting[kept:]
            return dropped
