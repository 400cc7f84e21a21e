"""The receive ring: bytes that have arrived and were not read yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


class Ring:
    """Received bytes in order, at most `capacity` of them. Not locked: its owner does that."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._chunks: deque[bytes] = deque()
        self._start = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, data: bytes) -> int:
        """Keep what fits of `data`; gives how many bytes that was."""
        taken = min(len(data), self.capacity - self._size)
        if taken:
            self._chunks.append(data if taken == len(data) else data[:taken])
            self._size += taken
        return taken

    def take_into(self, view: memoryview) -> int:
        """Move as many bytes as there are, at most `len(view)`; gives how many."""
        done = 0
        while done < len(view) and self._chunks:
            piece = memoryview(self._chunks[0])[self._start : self._start + len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._drop(len(piece))
        return done

    def take_until(self, stop: re.Pattern[bytes], limit: int) -> bytes:
        """Take at least one byte and at most `limit`, ending with the first match of `stop` if there is one."""
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
