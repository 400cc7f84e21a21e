"""The receive ring: bytes that have arrived and are not read yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


class Ring:
    """Received bytes in order, at most `capacity`. Not thread-safe: the owner must hold a lock."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._chunks: deque[bytes] = deque()
        self._start = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, data: bytes) -> int:
        """Store the first bytes of `data`, as many as fit. Return their number."""
        taken = min(len(data), self.capacity - self._size)
        if taken:
            self._chunks.append(data if taken == len(data) else data[:taken])
            self._size += taken
        return taken

    def take_into(self, view: memoryview) -> int:
        """Move up to `len(view)` bytes into `view`. Return their number."""
        done = 0
        while done < len(view) and self._chunks:
            piece = memoryview(self._chunks[0])[self._start : self._start + len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._drop(len(piece))
        return done

    def take_until(self, stop: re.Pattern[bytes], limit: int) -> bytes:
        """Remove and return 1 to `limit` bytes, up to and including the first match of `stop` if there is one.

        Returns bytes of one `put` only. The ring must not be empty.
        """
        head = self._chunks[0]
        end = min(len(head), self._start + limit)
        match = stop.search(head, self._start, end)
        data = head[self._start : match.end() if match else end]
        self._drop(len(data))
        return data

    def clear(self) -> None:
        self._chunks.clear()
        self._start = self._size = 0

    def _drop(self, count: int) -> None:
        self._start += count
        self._size -= count
        if self._start == len(self._chunks[0]):
            self._chunks.popleft()
            self._start = 0
