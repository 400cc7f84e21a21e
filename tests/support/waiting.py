r"""Waits of tests: for a condition that another thread, task or process makes true, and for a mark in a stream.

    until(lambda: not server.stats()["open"])          # a condition, from a thread
    await auntil(lambda: client.streams == 0)          # a condition, on an event loop
    read_until(lambda: line.recv(4096), b">>> ")       # once: what follows the mark is returned too
    stream = ByteReader(lambda: line.recv(4096))       # a dialogue: what follows the mark is for the next call
    stream.read_until(b"\r\n")

Use these only where nothing can be waited for directly (an event, a future, the end of a thread). A wait for a
condition fails after a minute, which is far more than any of them needs. A wait for a mark fails when its stream ends;
`read` brings its own time limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

SECONDS = 60.0
# Between the first looks, and between later ones: what does not come soon may take long, and looks take time from it.
PAUSE_SECONDS = 0.01
LONG_PAUSE_SECONDS = 0.1
# A loop looks at each of so many turns before it pauses.
TURNS = 100

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = SECONDS) -> T:
    """Wait until `condition()` is true, and return what it gave. `AssertionError` if that does not happen in time."""
    deadline, pause = time.monotonic() + seconds, PAUSE_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not true within {seconds:g} s; last result: {result!r}"
        time.sleep(pause)
        pause = min(1.2 * pause, LONG_PAUSE_SECONDS)
    return result


async def auntil(condition: Callable[[], T], seconds: float = SECONDS) -> T:
    """Like `until`, on an event loop, whose other tasks run between two looks."""
    deadline, turns = time.monotonic() + seconds, 0
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not true within {seconds:g} s; last result: {result!r}"
        turns += 1
        await asyncio.sleep(0 if turns < TURNS else PAUSE_SECONDS)
    return result


def read_until(read: Callable[[], bytes], mark: bytes) -> bytes:
    """Read until `mark` has arrived. Return everything that was read. `EOFError` if the stream ends before."""
    data = b""
    while mark not in data:
        data += _some(read(), data, mark)
    return data


async def aread_until(read: Callable[[], Awaitable[bytes]], mark: bytes) -> bytes:
    """Like `read_until`, on an event loop."""
    data = b""
    while mark not in data:
        data += _some(await read(), data, mark)
    return data


class ByteReader:
    """Reads a stream piece by piece. `rest` are the bytes that have arrived and were not returned yet."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        """`read` returns some bytes, or none at the end of the stream."""
        self._read = read
        self.rest = b""

    def read_until(self, mark: bytes) -> bytes:
        """Return everything up to and including the next `mark`. `EOFError` if the stream ends before."""
        while mark not in self.rest:
            self.rest += _some(self._read(), self.rest, mark)
        return self._take(self.rest.index(mark) + len(mark))

    def read_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes. `EOFError` if the stream ends before."""
        while len(self.rest) < count:
            self.rest += _some(self._read(), self.rest, f"{count} bytes")
        return self._take(count)

    def _take(self, count: int) -> bytes:
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken


def _some(data: bytes, before: bytes, wanted: bytes | str) -> bytes:
    if not data:
        raise EOFError(f"the stream ended before {wanted!r}, after {before!r}")
    return data
